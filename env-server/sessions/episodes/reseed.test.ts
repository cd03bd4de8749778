import { cpSync } from 'node:fs';
import t, { type Test } from 'tap';
import { silentApp } from '../../../test/app.test-data.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { type EpisodeState, withDynamics } from './episode.ts';

/** A lake on which two of three moves slip, without a hole near the start. */
const LAKE = {
  env_id: 'FrozenLake-v0',
  seed: 7,
  config: { map: '8x8', success_rate: 1 / 3 },
  dynamics_seed: 3,
};
const MOVES = ['Left', 'Up', 'Left', 'Up', 'Left', 'Up', 'Left', 'Up'];

interface Reply {
  readonly session_id: string;
  readonly step: number;
  readonly observation: string;
  readonly state_key?: string;
  readonly reseeds?: readonly object[];
  readonly sessions: readonly Reply[];
  readonly snapshot_id: string;
  readonly code?: string;
  readonly errors?: readonly { readonly pointer: string }[];
}

async function open(t: Test, data = '') {
  const settings = { data, checkpointSeconds: 0 };
  const { server, ask: request } = await silentApp(t, settings, { registry: testRegistry() });
  const ask = async (...asked: Parameters<typeof request>): Promise<Reply> => {
    const { trace_id: _trace, expires_at: _expires, ...reply } = (await request(...asked)).body;
    return reply;
  };
  const create = (more: object = {}): Promise<Reply> => ask('POST', '/v1/sessions', { ...LAKE, ...more });
  const of = (id: string, operation: string, body: object = {}, key?: string) =>
    ask('POST', `/v1/sessions/${id}/${operation}`, body, key);
  /** Observations after each of the moves, up to the end. */
  const play = async (id: string, moves = MOVES): Promise<string[]> => {
    const seen = [];
    for (const action of moves) {
      const { observation } = await of(id, 'step', { action });
      if (observation === undefined) break;
      seen.push(observation);
    }
    return seen;
  };
  const trajectory = async (id: string) => {
    const { body } = await server.inject({ method: 'GET', url: `/v1/sessions/${id}/trajectory` });
    return body
      .trim()
      .split('\n')
      .map(line => JSON.parse(line));
  };
  return { server, ask, create, of, play, trajectory };
}

t.test('clones with a dynamics seed have separate streams, and those without share one', async t => {
  const { create, of, play } = await open(t);
  const { session_id: id } = await create();
  await play(id, MOVES.slice(0, 2));
  const fresh = (await of(id, 'clone', { count: 8, dynamics_seed: 100 })).sessions;
  t.same(
    fresh.map(({ reseeds }) => reseeds),
    Array.from({ length: 8 }, (_, k) => [{ step: 2, dynamics_seed: 100 + k }]),
  );
  const futures = [];
  for (const { session_id } of fresh) futures.push((await play(session_id)).join('|'));
  t.ok(new Set(futures).size > 1, 'luck differs');
  const twins = (await of(id, 'clone', { count: 2 })).sessions;
  t.notOk('reseeds' in twins[0]);
  t.same(await play(twins[0].session_id), await play(twins[1].session_id));
  const again = (await of(id, 'clone', { dynamics_seed: 105 })).sessions[0];
  t.equal((await play(again.session_id)).join('|'), futures[5], 'the same seed gives the same luck');
});

t.test('a trajectory names each change of the stream, and replays through all of them', async t => {
  const { ask, create, of, play, trajectory } = await open(t);
  const { session_id: root } = await create();
  const seen = await play(root, MOVES.slice(0, 2));
  const [first] = (await of(root, 'clone', { dynamics_seed: 50 })).sessions;
  seen.push(...(await play(first.session_id, MOVES.slice(2, 3))));
  const { snapshot_id } = await of(first.session_id, 'snapshot');
  await play(first.session_id, MOVES.slice(3, 5));
  const restored = await of(first.session_id, 'restore', { snapshot_id, dynamics_seed: 9 });
  const lineage = [
    { step: 2, dynamics_seed: 50 },
    { step: 3, dynamics_seed: 9 },
  ];
  t.match(restored, { step: 3, dynamics_seed: 3, reseeds: lineage });
  seen.push(...(await play(first.session_id, MOVES.slice(3, 5))));
  const [reset, ...steps] = await trajectory(first.session_id);
  t.match(reset, { seed: 7, dynamics_seed: 3, reseeds: lineage });
  t.same(
    steps.map(({ observation }) => observation),
    seen,
  );
  t.equal((await ask('GET', `/v1/sessions/${first.session_id}/replay`)).code, undefined);
  // A lineage carried out by hand gives the same episode.
  const { session_id: copy } = await create();
  await play(copy, MOVES.slice(0, 2));
  const [second] = (await of(copy, 'clone', { dynamics_seed: 50 })).sessions;
  await play(second.session_id, MOVES.slice(2, 3));
  const [third] = (await of(second.session_id, 'clone', { dynamics_seed: 9 })).sessions;
  await play(third.session_id, MOVES.slice(3, 5));
  const [, ...same] = await trajectory(third.session_id);
  t.same(same, steps);
});

t.test('at one step the last change counts, and at step 0 it is the dynamics seed', async t => {
  const { create, of, play } = await open(t);
  const { session_id: id } = await create();
  const [begun] = (await of(id, 'clone', { dynamics_seed: 4 })).sessions;
  t.match(begun, { dynamics_seed: 4 });
  t.notOk('reseeds' in begun);
  t.same(await play(begun.session_id), await play((await create({ dynamics_seed: 4 })).session_id));
  await play(id, MOVES.slice(0, 1));
  const [one] = (await of(id, 'clone', { dynamics_seed: 5 })).sessions;
  const [two] = (await of(one.session_id, 'clone', { dynamics_seed: 6 })).sessions;
  t.same(two.reseeds, [{ step: 1, dynamics_seed: 6 }]);
});

for (const kept of ['journal', 'database'] as const) {
  t.test(`changed streams continue after a restart from the ${kept}`, async t => {
    const folder = t.testdir({ data: {} });
    const data = `${folder}/data`;
    const before = await open(t, data);
    const { session_id: id } = await before.create({ state_key: true });
    await before.play(id, MOVES.slice(0, 2));
    const { sessions } = await before.of(id, 'clone', { count: 3, dynamics_seed: 60 });
    const twins = (await before.of(id, 'clone', { count: 3, dynamics_seed: 60 })).sessions;
    for (const { session_id } of sessions) await before.play(session_id, MOVES.slice(2, 4));
    const wanted = [];
    for (const { session_id } of twins) wanted.push((await before.play(session_id)).slice(2));
    const last = sessions[2].session_id;
    const { snapshot_id } = await before.of(last, 'snapshot');
    const back = { snapshot_id, dynamics_seed: 8 };
    const restored = await before.of(last, 'restore', back, 'back');
    const stepped = await before.of(id, 'step', { action: 'Left' }, 'left');
    t.type(stepped.state_key, 'string');
    let copy = data;
    if (kept === 'database') await before.server.close();
    else {
      // The files as a killed server leaves them.
      copy = `${folder}/killed`;
      cpSync(data, copy, { recursive: true });
    }
    const after = await open(t, copy);
    for (const [index, { session_id }] of sessions.slice(0, 2).entries())
      t.same(await after.play(session_id, MOVES.slice(4)), wanted[index].slice(0, 4));
    t.same(await after.of(last, 'restore', back, 'back'), restored, 'the reply under the key is kept');
    t.same(
      await after.of(id, 'step', { action: 'Left' }, 'left'),
      stepped,
      'the reply with its state key is kept',
    );
    const { reseeds } = restored;
    t.match(await after.ask('GET', `/v1/sessions/${last}`), { reseeds });
  });
}

t.test('an environment without chance of the server refuses a seed for clones and restores', async t => {
  const { ask, create, of } = await open(t);
  const { environments } = (await ask('GET', '/v1/envs?limit=200')) as unknown as {
    environments: { env_id: string }[];
  };
  let refusals = 0;
  for (const { env_id } of environments) {
    const { capabilities } = (await ask('GET', `/v1/envs/${encodeURIComponent(env_id)}`)) as unknown as {
      capabilities: { seed: boolean; snapshot: boolean; reseed: boolean };
    };
    t.equal(capabilities.reseed, capabilities.seed && capabilities.snapshot, env_id);
    if (capabilities.reseed || refusals > 2) continue;
    const { session_id: id } = await create({
      env_id,
      seed: undefined,
      config: {},
      dynamics_seed: undefined,
    });
    if (!id) continue;
    refusals++;
    const refused = { code: 'invalid_request', errors: [{ pointer: '/dynamics_seed' }] };
    t.match(await of(id, 'clone', { dynamics_seed: 1 }), refused);
    t.match(await of(id, 'restore', { snapshot_id: 'x', dynamics_seed: 1 }), refused);
  }
  t.ok(refusals > 0, 'there is one');
  for (const dynamics_seed of [-1, 1.5, 'x', Number.MAX_SAFE_INTEGER])
    t.match(await of('s', 'clone', { dynamics_seed }), { code: 'invalid_request' });
});

t.test('an episode changes its stream at 1,024 steps at most', async t => {
  let episode: EpisodeState = {
    seed: 1,
    options: {},
    state: null,
    random: [1, 2, 3, 4],
    step: 0,
    totalReward: 0,
    terminated: false,
    truncated: false,
    failed: false,
    info: {},
    restart: undefined,
    log: undefined,
    bytes: 0,
  };
  const at = (step: number) => withDynamics({ ...episode, step }, step);
  for (let step = 0; step <= 1024; step++) episode = at(step);
  t.equal(episode.reseeds!.length, 1024);
  t.ok(episode.bytes > 1024 * 40, 'they count as memory');
  t.equal(at(1024).reseeds!.length, 1024, 'the last one may be replaced');
  t.throws(() => at(1025), { code: 'invalid_request', message: /changed its dynamics seed at 1024 steps/ });
});

t.test('equal states have equal keys, also with other generators and reached in other ways', async t => {
  const { create, of } = await open(t);
  const pinned = { env_id: 'FrozenLake-v0', config: { success_rate: 1, map: '4x4' } };
  const { sessions } = await create({ ...pinned, dynamics_seed: undefined, count: 2, state_key: true });
  const [one, two] = sessions;
  t.equal(one.state_key, two.state_key);
  t.match(one.state_key, /^[\w-]{22}$/);
  const keyAfter = async (id: string, ...moves: string[]) => {
    let key: string | undefined;
    for (const action of moves) key = (await of(id, 'step', { action })).state_key;
    return key;
  };
  const wall = await keyAfter(one.session_id, 'Left');
  t.equal(await keyAfter(two.session_id, 'Left'), wall);
  const [clone] = (await of(one.session_id, 'clone', { dynamics_seed: 77 })).sessions;
  t.equal(clone.state_key, wall, 'another generator, the same state');
  const { snapshot_id } = await of(one.session_id, 'snapshot');
  t.equal((await of(one.session_id, 'restore', { snapshot_id })).state_key, wall);
  t.type((await of(one.session_id, 'reset', {})).state_key, 'string', 'an episode of a reset names it too');
  t.notOk('state_key' in (await of(one.session_id, 'reset', { state_key: false })));
  const { session_id: silent } = await create();
  t.notOk('state_key' in (await of(silent, 'step', { action: 'Left' })));
});
