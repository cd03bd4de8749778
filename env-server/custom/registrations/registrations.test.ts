import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { isProblem } from '../../../test/app.test-data.ts';
import { EXAMPLES } from '../examples.ts';
import { at, composed, script, server, tabular } from './registrations.test-data.ts';

t.test('a server with registrations', async t => {
  const { ask, server: app } = await server(t);

  await t.test('every example that needs no service registers unchanged, and plays', async t => {
    for (const kind of ['tabular', 'script', 'composed']) {
      const { env_id } = EXAMPLES[kind].value;
      const made = await ask('POST', '/v1/envs', EXAMPLES[kind].value);
      t.equal(made.status, 201, made.text);
      t.match(made.body, {
        env_id,
        kind,
        owner: 'local',
        revision: 1,
        durable: false,
        report: { passed: true },
      });
      const { body: document } = await ask('GET', at(env_id as string));
      t.match(document, { env_id, tags: [kind] });
      const { body: session } = await ask('POST', '/v1/sessions', { env_id, seed: 1 });
      const action = document.example_action as unknown as Json;
      const step = await ask('POST', `/v1/sessions/${session.session_id}/step`, { action });
      t.equal(step.status, 200, step.text);
    }
    const { body } = await ask('GET', '/v1/envs?tag=tabular');
    t.match(body.environments, [{ env_id: tabular.env_id }]);
  });

  await t.test('snapshots, clones and trajectories of a script work as anywhere', async t => {
    const { body: session } = await ask('POST', '/v1/sessions', { env_id: script.env_id, seed: 5, count: 2 });
    t.same((session.sessions as unknown as unknown[]).length, 2);
    const route = `/v1/sessions/${session.session_id}`;
    const { body: snapshot } = await ask('POST', `${route}/snapshot`);
    const first = await ask('POST', `${route}/step`, { action: '5' });
    await ask('POST', `${route}/restore`, { snapshot_id: snapshot.snapshot_id as unknown as Json });
    const again = await ask('POST', `${route}/step`, { action: '5' });
    t.same(again.body.observation, first.body.observation);
    const { body: clones } = await ask('POST', `${route}/clone`, { count: 3 });
    t.same((clones.sessions as unknown as unknown[]).length, 3);
    const trajectory = await ask('GET', `${route}/trajectory`);
    t.equal(trajectory.text.trim().split('\n').length, 2);
  });

  await t.test('the random player draws a new action at each step, the same for equal seeds', async t => {
    const play = async () => {
      const { body: session } = await ask('POST', '/v1/sessions', {
        env_id: script.env_id,
        seed: 5,
        config: { largest: 1000 },
      });
      const drawn: Json[] = [];
      for (let step = 0; step < 7; step++) {
        const route = `/v1/sessions/${session.session_id}`;
        const { body } = await ask('POST', `${route}/reference`, { policy: 'random' });
        drawn.push((body.actions as unknown as Json[])[0]);
        await ask('POST', `${route}/step`, { action: '0' });
      }
      return drawn;
    };
    const drawn = await play();
    t.ok(new Set(drawn).size > 2, `${drawn}: the environment itself draws nothing between steps`);
    t.same(await play(), drawn);
    const { body: document } = await ask('GET', at(script.env_id));
    t.same(document.example_actions, script.definition.actions);
  });

  await t.test('invalid ids, kinds and definitions are rejected with their location', async t => {
    const refusals: [envId: string, definition: Json, pointer: string][] = [
      ['Maze', tabular.definition, '/env_id'],
      ['a/b/c-v0', tabular.definition, '/env_id'],
      ['../x-v0/', tabular.definition, '/env_id'],
      ['me/M-v0', 'text', '/definition'],
      ['me/M-v0', {}, '/definition/kind'],
      ['me/M-v0', { kind: 'magic' }, '/definition/kind'],
      ['me/M-v0', { kind: 'remote', protocol: 'carrier pigeon' }, '/definition/protocol'],
      ['me/M-v0', { ...tabular.definition, extra: 1 }, '/definition/extra'],
      ['me/M-v0', { ...tabular.definition, start: { nowhere: 1 } }, '/definition/start/nowhere'],
      ['me/M-v0', { ...script.definition, source: 'function reset( {' }, '/definition/source'],
      ['me/M-v0', { ...script.definition, source: 'for (;;) {}' }, '/definition/source'],
      ['me/M-v0', { ...script.definition, source: ['const reset = 1;'] }, '/definition/source'],
      ['me/M-v0', { kind: 'composed', env_id: 'Nothing-v0' }, '/definition/env_id'],
      ['me/M-v0', { ...composed.definition, config: { size: 'x' } }, '/definition/config/size'],
      ['me/M-v0', { ...composed.definition, wrappers: [{ name: 'magic' }] }, '/definition/wrappers/0/name'],
      [
        'me/M-v0',
        { kind: 'remote', protocol: 'ragen', url: 'http://169.254.169.254/', env_id: 'X-v0' },
        '/definition/url',
      ],
      [
        'me/M-v0',
        { kind: 'remote', protocol: 'openenv', url: 'http://localhost:1/', example_action: {} },
        '/definition/url',
      ],
    ];
    for (const [env_id, definition, pointer] of refusals) {
      const reply = await ask('POST', '/v1/envs', { env_id, definition });
      isProblem(t, reply, 'invalid_request');
      t.match(reply.body.errors, [{ pointer }], `${pointer}: ${reply.body.detail}`);
    }
    isProblem(t, await ask('GET', at('me/M-v0')), 'unknown_environment');
  });

  await t.test(
    'an environment that does not keep its contract is not accepted, and the findings say why',
    async t => {
      const faulty = (step: string) => ({
        env_id: 'me/Faulty-v0',
        definition: {
          ...script.definition,
          source: `const reset = () => ({ n: 0 }); ${step} const observe = () => 'x';`,
        },
      });
      const cases: [step: string, detail: RegExp][] = [
        ['const step = s => ({ state: s, reward: 7 });', /reward_range/],
        ['let n = 0; const step = () => ({ state: { n: ++n } });', /snapshot|determinism/],
        ['const step = () => { throw new Error("no"); };', /no_exceptions.*Error: no/],
        ['const step = () => { for (;;) {} };', /no_exceptions.*more than \d+ ms of processor time/],
        ['const step = () => { const f = () => f() + 1; return f(); };', /called one another too deeply/],
        ['const step = s => ({ state: s, info: { x: process.env } });', /process is not defined/],
      ];
      for (const [step, detail] of cases) {
        const reply = await ask('POST', '/v1/envs', faulty(step));
        isProblem(t, reply, 'check_failed');
        t.match(String(reply.body.detail), detail);
      }
      isProblem(t, await ask('GET', at('me/Faulty-v0')), 'unknown_environment');
      t.equal(
        (await ask('POST', '/v1/envs', { ...script, env_id: 'me/Faulty-v0' })).status,
        201,
        'the id is free',
      );
    },
  );

  await t.test('an id is registered once; replacing it leaves open sessions as they are', async t => {
    const own = { ...tabular, env_id: 'me/Bank-v0' };
    await ask('POST', '/v1/envs', own);
    isProblem(t, await ask('POST', '/v1/envs', own), 'environment_exists');
    const { body: session } = await ask('POST', '/v1/sessions', { env_id: own.env_id });
    const changed = JSON.parse(JSON.stringify(own.definition).replace('You stand', 'You sit'));
    const replaced = await ask('PUT', at(own.env_id), { definition: changed });
    t.match(replaced, { status: 200, body: { revision: 2, replaced_at: /Z$/ } });
    const route = `/v1/sessions/${session.session_id}`;
    t.match((await ask('GET', route)).body.observation, /You stand/);
    t.match((await ask('POST', '/v1/sessions', { env_id: own.env_id })).body.observation, /You sit/);
    isProblem(t, await ask('PUT', at('me/None-v0'), { definition: changed }), 'unknown_environment');
    const broken = await ask('PUT', at(own.env_id), { definition: { ...changed, start: {} } });
    isProblem(t, broken, 'invalid_request');
    t.match((await ask('POST', '/v1/sessions', { env_id: own.env_id })).body.observation, /You sit/);
  });

  await t.test('one of two concurrent registrations of an id wins', async t => {
    const own = { ...script, env_id: 'me/Twice-v0' };
    const replies = await Promise.all([ask('POST', '/v1/envs', own), ask('POST', '/v1/envs', own)]);
    t.same(replies.map(({ status }) => status).sort(), [201, 409]);
  });

  await t.test('an environment can be removed when no session plays it', async t => {
    const own = { ...tabular, env_id: 'me/Left-v0' };
    await ask('POST', '/v1/envs', own);
    const { body: session } = await ask('POST', '/v1/sessions', { env_id: own.env_id });
    isProblem(t, await ask('DELETE', at(own.env_id)), 'environment_in_use');
    await ask('DELETE', `/v1/sessions/${session.session_id}`);
    t.equal((await ask('DELETE', at(own.env_id))).status, 204);
    isProblem(t, await ask('GET', at(own.env_id)), 'unknown_environment');
    isProblem(t, await ask('DELETE', at(own.env_id)), 'unknown_environment');
  });

  await t.test('built-in environments stay as they are', async t => {
    const { definition } = tabular;
    isProblem(t, await ask('POST', '/v1/envs', { env_id: 'Sokoban-v0', definition }), 'builtin_environment');
    isProblem(t, await ask('PUT', at('Sokoban-v0'), { definition }), 'builtin_environment');
    isProblem(t, await ask('DELETE', at('Sokoban-v0')), 'builtin_environment');
    isProblem(t, await ask('GET', at('Sokoban-v0', '/definition')), 'builtin_environment');
  });

  await t.test('composed environments follow changes of their base', async t => {
    const own = { ...tabular, env_id: 'me/Base-v0' };
    await ask('POST', '/v1/envs', own);
    const upon = (env_id: string, base: string, config: JsonObject = {}) =>
      ask('POST', '/v1/envs', { env_id, definition: { kind: 'composed', env_id: base, config } });
    t.equal((await upon('me/A-v0', own.env_id, { max_steps: 4 })).status, 201);
    t.equal((await upon('me/B-v0', 'me/A-v0')).status, 201);
    isProblem(t, await ask('DELETE', at(own.env_id)), 'environment_in_use');

    const circle = await ask('PUT', at('me/A-v0'), { definition: { kind: 'composed', env_id: 'me/B-v0' } });
    isProblem(t, circle, 'invalid_request');
    t.match(String(circle.body.detail), /me\/A-v0 → me\/B-v0 → me\/A-v0/);

    const changed = JSON.parse(JSON.stringify(own.definition).replace('You stand', 'You sit'));
    await ask('PUT', at(own.env_id), { definition: changed });
    const { body } = await ask('POST', '/v1/sessions', { env_id: 'me/B-v0' });
    t.match(body.observation, /You sit/);
    t.match((await ask('GET', at('me/B-v0'))).body, { max_episode_steps: 4, config: { max_steps: 4 } });

    const shorter = await ask('PUT', at(own.env_id), { definition: { ...changed, max_episode_steps: 2 } });
    isProblem(t, shorter, 'environment_in_use');
    t.match(String(shorter.body.detail), /me\/A-v0 is composed from .* and would no longer fit/);
  });

  await t.test('a definition is returned unchanged, except its secrets', async t => {
    t.same((await ask('GET', at(script.env_id, '/definition'))).body.definition, script.definition);
  });

  await t.test('any environment can be checked', async t => {
    for (const id of [tabular.env_id, 'Bandit-v0']) {
      const { status, body } = await ask('POST', at(id, '/check'));
      t.equal(status, 200);
      t.match(body, { env_id: id, passed: true, findings: [], episodes: Number });
    }
    isProblem(t, await ask('POST', at('me/None-v0', '/check')), 'unknown_environment');
  });

  await t.test('the number of concurrent checks is limited', async t => {
    const attempts = Array.from({ length: 6 }, (_, i) =>
      ask('POST', '/v1/envs', { ...script, env_id: `me/S${i}-v0` }),
    );
    const replies = await Promise.all(attempts);
    t.equal(replies.filter(({ status }) => status === 201).length, 4);
    const refused = replies.filter(({ status }) => status === 429);
    t.equal(refused.length, 2);
    for (const reply of refused) isProblem(t, reply, 'too_many_requests');
    t.equal((await ask('POST', '/v1/envs', { ...script, env_id: 'me/S9-v0' })).status, 201);
  });

  await t.test('every transport offers registering and honors keys', async t => {
    const own = { ...tabular, env_id: 'me/Batch-v0' };
    const items = [
      { op: 'register', ...own },
      { op: 'register', ...own },
      { op: 'check', env_id: 'Bandit-v0' },
    ];
    const { body } = await ask('POST', '/v1/batch', { items });
    t.match(body.results, [{ ok: true }, { ok: false, error: { code: 'environment_exists' } }, { ok: true }]);
    const request = {
      method: 'PUT',
      url: at(own.env_id),
      headers: { 'content-type': 'application/json', 'idempotency-key': 'k' },
      payload: JSON.stringify({ definition: own.definition }),
    } as const;
    const replies = [await app.inject(request), await app.inject(request)];
    t.same(
      replies.map(reply => reply.json().revision),
      [2, 2],
    );
  });
});

t.test('the number of environments is limited', async t => {
  const { ask } = await server(t, { maxCustomEnvironments: 1 });
  t.equal((await ask('POST', '/v1/envs', tabular)).status, 201);
  isProblem(t, await ask('POST', '/v1/envs', { ...tabular, env_id: 'me/Two-v0' }), 'too_many_environments');
  t.equal((await ask('PUT', at(tabular.env_id), { definition: tabular.definition })).status, 200);
});
