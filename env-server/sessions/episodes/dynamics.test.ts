import t, { type Test } from 'tap';
import { silentApp } from '../../../test/app.test-data.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';

/** A lake on which every move may slip. */
const LAKE = { env_id: 'FrozenLake-v0', seed: 7 };
const MOVES = ['Right', 'Down', 'Left', 'Up', 'Right', 'Down'];

interface Opened {
  readonly session_id: string;
  readonly observation: string;
  readonly dynamics_seed?: number;
  readonly sessions?: readonly Opened[];
}

async function open(t: Test, data = '') {
  const settings = { data, checkpointSeconds: 0 };
  const { server, ask: request } = await silentApp(t, settings, { registry: testRegistry() });
  const ask = async (method: 'GET' | 'POST', url: string, payload?: object) =>
    (await request(method, url, payload)).body;
  const create = (more: object = {}): Promise<Opened> => ask('POST', '/v1/sessions', { ...LAKE, ...more });
  /** Observations after each of the moves, up to the end. */
  const play = async (id: string, moves = MOVES): Promise<string[]> => {
    const seen = [];
    for (const action of moves) {
      const reply = await ask('POST', `/v1/sessions/${id}/step`, { action });
      if (reply.observation === undefined) break;
      seen.push(reply.observation);
    }
    return seen;
  };
  return { server, ask, create, play };
}

t.test('members of a group share the start, and chance differs from there on', async t => {
  const { create, play } = await open(t);
  const { sessions = [] } = await create({ count: 8, dynamics_seed: 100 });
  t.equal(new Set(sessions.map(({ observation }) => observation)).size, 1);
  t.same(
    sessions.map(member => member.dynamics_seed),
    [100, 101, 102, 103, 104, 105, 106, 107],
  );
  const played = await Promise.all(sessions.map(({ session_id }) => play(session_id)));
  t.ok(new Set(played.map(String)).size > 3, 'their moves slip differently');
  const alone = await create({ dynamics_seed: 103 });
  t.same(await play(alone.session_id), played[3], 'a session with the seed of a member is that member');
});

t.test('without a dynamics seed everything is as `seed` says', async t => {
  const { create, play } = await open(t);
  const { sessions = [] } = await create({ count: 4 });
  const played = await Promise.all(sessions.map(({ session_id }) => play(session_id)));
  t.equal(new Set(played.map(String)).size, 1);
  t.same(await play((await create({ dynamics_seed: null })).session_id), played[0]);
  t.notOk('dynamics_seed' in sessions[0]);
});

t.test('snapshots, clones, trajectories and resets keep it', async t => {
  const { ask, create, play } = await open(t);
  const { session_id: id } = await create({ dynamics_seed: 3 });
  const [first, ...rest] = await play(id, MOVES.slice(0, 2));
  const { snapshot_id } = await ask('POST', `/v1/sessions/${id}/snapshot`);
  const { sessions } = await ask('POST', `/v1/sessions/${id}/clone`, {});
  const onward = await play(id);
  t.same(await play(sessions[0].session_id), onward);
  t.equal((await ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id })).dynamics_seed, 3);
  t.same(await play(id), onward);
  const lines = (await ask('GET', `/v1/sessions/${id}`)) as { dynamics_seed: number };
  t.equal(lines.dynamics_seed, 3);
  const again = await ask('POST', `/v1/sessions/${id}/reset`, { seed: 7, dynamics_seed: 3 });
  t.equal(again.dynamics_seed, 3);
  t.same(await play(id, MOVES.slice(0, 2)), [first, ...rest]);
  t.notOk('dynamics_seed' in (await ask('POST', `/v1/sessions/${id}/reset`, { seed: 7 })));
});

t.test('a trajectory names it, and replays under it', async t => {
  const { server, create, play } = await open(t);
  const { session_id: id } = await create({ dynamics_seed: 5 });
  const seen = await play(id, MOVES.slice(0, 3));
  const { body } = await server.inject({ method: 'GET', url: `/v1/sessions/${id}/trajectory` });
  const [reset, ...steps] = body
    .trim()
    .split('\n')
    .map(line => JSON.parse(line));
  t.match(reset, { seed: 7, dynamics_seed: 5 });
  t.same(
    steps.map(({ observation }) => observation),
    seen,
  );
});

t.test('members of a group continue under their own after a restart', async t => {
  const data = t.testdir();
  const before = await open(t, data);
  const { sessions = [] } = await before.create({ count: 3, dynamics_seed: 40 });
  const moves = MOVES.slice(0, 2);
  for (const { session_id } of sessions) await before.play(session_id, moves);
  const twins = await before.create({ count: 3, dynamics_seed: 40 });
  const wanted = [];
  for (const { session_id } of twins.sessions!) wanted.push(await before.play(session_id));
  await before.server.close();
  const after = await open(t, data);
  for (const [index, { session_id }] of sessions.entries()) {
    t.equal((await after.ask('GET', `/v1/sessions/${session_id}`)).dynamics_seed, 40 + index);
    t.same(await after.play(session_id, MOVES.slice(2)), wanted[index].slice(2));
  }
});

t.test('an environment with chance outside its generator refuses a dynamics seed', async t => {
  const { ask, create } = await open(t);
  const { environments } = await ask('GET', '/v1/envs?limit=200');
  const capable = await Promise.all(
    environments.map(
      async ({ env_id }: { env_id: string }) =>
        (await ask('GET', `/v1/envs/${encodeURIComponent(env_id)}`)).capabilities,
    ),
  );
  for (const [index, { env_id }] of environments.entries()) {
    if (capable[index].seed && capable[index].snapshot) continue;
    const { code, errors } = (await create({ env_id, seed: undefined, dynamics_seed: 1 })) as unknown as {
      code: string;
      errors: { pointer: string }[];
    };
    t.match({ env_id, code, errors }, { code: 'invalid_request', errors: [{ pointer: '/dynamics_seed' }] });
  }
  t.ok(
    capable.some(({ seed, snapshot }) => !(seed && snapshot)),
    'there is one',
  );
});
