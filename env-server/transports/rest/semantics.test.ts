import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';

const KEY = (key: string) => ({ 'idempotency-key': key });

t.test('a repeated key returns the stored reply and steps nothing', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open()}`;
  const first = await ask('POST', `${route}/step`, { action: 'draw' }, KEY('a'));
  await ask('POST', `${route}/step`, { action: 'draw' }, KEY('b'));
  const again = await ask('POST', `${route}/step`, { action: 'draw' }, KEY('a'));
  t.same(again.body, first.body);
  t.match((await ask('GET', route)).body, { step: 2 });
  isProblem(t, await ask('POST', `${route}/step`, { action: 'add' }, KEY('a')), 'key_reused');
});

t.test('keys hold for creation, too, and for what a failed request did not do', async t => {
  const { ask, open, sessions } = await testApp(t);
  const body = { env_id: 'test/Counter-v0', count: 2 };
  const first = await ask('POST', '/v1/sessions', body, KEY('create'));
  const again = await ask('POST', '/v1/sessions', body, KEY('create'));
  t.same(again.body, first.body);
  t.equal(sessions.size, 2);
  const route = `/v1/sessions/${await open()}`;
  isProblem(t, await ask('POST', `${route}/step`, { action: {} }, KEY('x')), 'invalid_action');
  t.equal((await ask('POST', `${route}/step`, { action: 'add' }, KEY('x'))).status, 200);
});

t.test('a retry while the first attempt is in progress waits for its reply', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ env_id: 'test/Slow-v0' })}`;
  const step = () => ask('POST', `${route}/step`, { action: 'add' }, KEY('once'));
  const attempts = [step(), step()];
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  waiting.shift()!();
  const [first, second] = await Promise.all(attempts);
  t.same(second.body, first.body);
  t.match(first.body, { step: 1 });
  t.equal(waiting.length, 0, 'one step only');
});

t.test('operations of one session run in the order of their arrival, also after a slow one', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ env_id: 'test/Slow-v0' })}`;
  const replies = [
    ask('POST', `${route}/step`, { action: 'add' }),
    ask('POST', `${route}/step`, { action: 'draw', expected_step: 2 }),
    ask('POST', `${route}/reference`, { policy: 'none' }),
    ask('POST', `${route}/step`, { action: 'jump', expected_step: 3 }),
  ];
  for (let steps = 0; steps < 3; steps++) {
    while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
    t.equal(waiting.length, 1, 'never two at once');
    waiting.shift()!();
  }
  const [first, second, planned, third] = await Promise.all(replies);
  t.equal(first.body.step, 1);
  t.equal(second.body.step, 2);
  t.equal(planned.body.code, 'unknown_reference', 'a failure delays nothing');
  t.equal(third.body.step, 3);
});

t.test('a slow session delays no other', async t => {
  const { ask, open } = await testApp(t);
  const slow = ask('POST', `/v1/sessions/${await open({ env_id: 'test/Slow-v0' })}/step`, { action: 'add' });
  const quick = await ask('POST', `/v1/sessions/${await open()}/step`, { action: 'add' });
  t.equal(quick.status, 200);
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  waiting.shift()!();
  t.equal((await slow).status, 200);
});

t.test('a step that takes too long continues; its key gets the reply', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ env_id: 'test/Slow-v0' })}`;
  const late = await ask('POST', `${route}/step`, { action: 'add', timeout_ms: 1 }, KEY('k'));
  isProblem(t, late, 'step_timeout');
  t.equal(late.headers['retry-after'], '1');
  const retry = ask('POST', `${route}/step`, { action: 'add', timeout_ms: 10_000 }, KEY('k'));
  waiting.shift()!();
  t.match((await retry).body, { step: 1 });
});

t.test('an exception ends its episode only', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ env_id: 'test/Faulty-v0' })}`;
  const other = `/v1/sessions/${await open({ env_id: 'test/Faulty-v0' })}`;
  const fault = await ask('POST', `${route}/step`, { action: 'throw' });
  isProblem(t, fault, 'environment_fault');
  t.match(fault.body.detail, /test\/Faulty-v0 failed at step 1: out of order/);
  t.notMatch(fault.text, /\.ts:/, 'no stack trace');
  isProblem(t, await ask('POST', `${route}/step`, { action: 'add' }), 'episode_over');
  t.equal((await ask('POST', `${other}/step`, { action: 'add' })).status, 200);
  isProblem(t, await ask('POST', `${other}/step`, { action: 'nan' }), 'environment_fault');
  t.equal((await ask('POST', `${route}/reset`)).status, 200);
  t.equal((await ask('POST', `${route}/step`, { action: 'add' })).status, 200);
});

t.test('a snapshot gives the same future, random draws included', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ config: { goal: 2, max_steps: 50 } })}`;
  const play = async () => {
    const seen: unknown[] = [];
    for (const action of ['draw', 'draw', 'add', 'draw']) {
      const { body } = await ask('POST', `${route}/step`, { action });
      seen.push([body.step, body.observation, body.reward, body.terminated]);
    }
    return seen;
  };
  await ask('POST', `${route}/step`, { action: 'draw' });
  const { snapshot_id } = (await ask('POST', `${route}/snapshot`)).body;
  const before = (await ask('GET', route)).body;
  const future = await play();
  const restored = await ask('POST', `${route}/restore`, { snapshot_id: String(snapshot_id) });
  t.equal(restored.body.observation, before.observation);
  t.equal(restored.body.step, 1);
  t.not(restored.body.episode_id, before.episode_id);
  t.same(await play(), future);
  await ask('POST', `${route}/restore`, { snapshot_id: String(snapshot_id) });
  t.same(await play(), future, 'as often as you like');
});

t.test('clones have the state and the random stream of the original, and then differ', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ group_id: 'mine', config: { preset: 'long' } });
  await ask('POST', `/v1/sessions/${id}/step`, { action: 'draw' });
  const { body, status } = await ask('POST', `/v1/sessions/${id}/clone`, { count: 2 });
  t.equal(status, 201);
  const clones = body.sessions as unknown as { session_id: string; group_id: string; step: number }[];
  t.same(
    clones.map(clone => [clone.group_id, clone.step]),
    [
      ['mine', 1],
      ['mine', 1],
    ],
  );
  const draw = async (session: string) =>
    (await ask('POST', `/v1/sessions/${session}/step`, { action: 'draw' })).body.observation;
  const drawn = await draw(id);
  t.equal(await draw(clones[0].session_id), drawn);
  await ask('POST', `/v1/sessions/${clones[1].session_id}/step`, { action: 'add' });
  t.match(await draw(clones[1].session_id), new RegExp(` ${String(drawn).split(' ')[1]}$`));
  t.match((await ask('GET', `/v1/sessions/${id}`)).body, { step: 2, return: 0 });
});

t.test('a trajectory replays to the same states, through restores and clones', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ config: { preset: 'long' }, options: { start: 2 } });
  const step = (session: unknown, action: string) => ask('POST', `/v1/sessions/${session}/step`, { action });
  await step(id, 'draw');
  const { snapshot_id } = (await ask('POST', `/v1/sessions/${id}/snapshot`)).body;
  await step(id, 'add');
  await ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id: String(snapshot_id) });
  const [clone] = (await ask('POST', `/v1/sessions/${id}/clone`)).body.sessions as unknown as {
    session_id: string;
  }[];
  const live = [
    (await step(clone.session_id, 'draw')).body,
    (await step(clone.session_id, 'jump')).body,
    (await step(clone.session_id, 'add')).body,
  ];
  const reply = await ask('GET', `/v1/sessions/${clone.session_id}/trajectory`);
  t.match(reply.headers['content-type'], /^application\/jsonl/);
  const records = reply.text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line));
  t.match(records[0], {
    type: 'reset',
    env_id: 'test/Counter-v0',
    seed: Number,
    options: { start: 2 },
    observation: /^2\/1000/,
  });
  t.same(
    records.slice(1).map(record => record.action),
    ['draw', 'draw', 'jump', 'add'],
  );
  t.match(
    records.slice(2),
    live.map(({ step, observation, reward, info }) => ({ type: 'step', step, observation, reward, info })),
  );

  const { body } = await ask('POST', '/v1/sessions', {
    env_id: records[0].env_id,
    config: records[0].config,
    seed: records[0].seed,
    options: records[0].options,
  });
  for (const record of records.slice(1)) {
    const { observation, reward } = (await step(body.session_id, record.action)).body;
    t.same([observation, reward], [record.observation, record.reward]);
  }
});

t.test('an environment that does not keep to its seed is found out by its trajectory', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ env_id: 'test/Fickle-v0' });
  const reply = await ask('GET', `/v1/sessions/${id}/trajectory`);
  isProblem(t, reply, 'unsupported');
  t.match(reply.body.detail, /does not keep to its seed/);
});

t.test('an environment that holds more than its state is recorded, not copied', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ env_id: 'test/Held-v0', count: 2 });
  const route = `/v1/sessions/${id}`;
  t.equal((await ask('GET', route)).body.seed, null);
  isProblem(t, await ask('POST', `${route}/snapshot`), 'unsupported');
  isProblem(t, await ask('POST', `${route}/clone`), 'unsupported');
  const step = (await ask('POST', `${route}/step`, { action: 'add' })).body;
  const records = (await ask('GET', `${route}/trajectory`)).text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line));
  t.match(records, [
    { type: 'reset', seed: null },
    { type: 'step', action: 'add', observation: step.observation },
  ]);
});

t.test('idle sessions expire, answer 410 for a while, then 404', async t => {
  const app = await testApp(t, { idleTtlSeconds: 100, goneSeconds: 50, lifetimeSeconds: 250 });
  const { ask, open, wait } = app;
  const route = `/v1/sessions/${await open()}`;
  const brief = `/v1/sessions/${await open({ ttl_s: 10 })}`;
  wait(60);
  const { sessions } = (await ask('GET', '/v1/sessions')).body;
  t.match(sessions, [{ session_id: route.slice('/v1/sessions/'.length) }]);
  t.equal(sessions.length, 1, 'the other is not listed, whether it was cleared away yet or not');
  t.equal((await ask('GET', route)).status, 200, 'use keeps it');
  isProblem(t, await ask('GET', brief), 'session_expired');
  wait(90);
  t.equal((await ask('GET', route)).status, 200);
  isProblem(t, await ask('GET', brief), 'unknown_session');
  wait(90);
  t.equal((await ask('GET', route)).status, 200);
  wait(20);
  const gone = await ask('POST', `${route}/step`, { action: 'add' });
  isProblem(t, gone, 'session_expired');
  t.equal(gone.status, 410, 'however busy, at the end of its lifetime');
  t.equal((await ask('DELETE', route)).status, 204);
  t.equal(app.sessions.size, 0);
});

t.test('limits answer 429 with Retry-After, and a group is opened whole or not at all', async t => {
  const { ask, open, sessions } = await testApp(t, { maxSessions: 4, maxSessionsPerEnvironment: 3 });
  const create = (env_id: string, count: number) => ask('POST', '/v1/sessions', { env_id, count });
  const first = await open();
  const refused = await create('test/Counter-v0', 3);
  isProblem(t, refused, 'too_many_sessions');
  t.equal(refused.status, 429);
  t.equal(refused.headers['retry-after'], '1');
  t.equal(refused.body.retry_after_s, 1);
  t.match(refused.body.detail, /limit of 3 sessions of test\/Counter-v0/);
  t.equal(sessions.size, 1);
  t.equal((await create('test/Slow-v0', 3)).status, 201);
  const full = await create('test/Faulty-v0', 1);
  t.match(full.body.detail, /limit of 4 sessions on this server/);
  isProblem(t, await ask('POST', `/v1/sessions/${first}/clone`), 'too_many_sessions');
  await ask('DELETE', `/v1/sessions/${first}`);
  t.equal((await create('test/Faulty-v0', 1)).status, 201);
  t.match((await create('test/Faulty-v0', 1)).body.code, 'too_many_sessions');
  isProblem(
    t,
    await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', options: { start: 'x' } }),
    'too_many_sessions',
  );
});

t.test('a refused reset gives its place back', async t => {
  const { ask, open } = await testApp(t, { maxSessions: 1 });
  const wrong = await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', options: { start: 'x' } });
  isProblem(t, wrong, 'invalid_request');
  t.ok(await open());
});

t.test('a draining server opens nothing, is not ready, and lets sessions finish', async t => {
  const { ask, open, sessions } = await testApp(t);
  const id = await open();
  t.equal((await ask('GET', '/readyz')).status, 200);
  sessions.shutdown.drain();
  const unready = await ask('GET', '/readyz');
  isProblem(t, unready, 'draining');
  t.equal(unready.status, 503);
  t.ok(unready.headers['retry-after']);
  isProblem(t, await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }), 'draining');
  t.equal((await ask('POST', `/v1/sessions/${id}/step`, { action: 'add' })).status, 200);
  t.equal((await ask('GET', '/livez')).status, 200);
});
