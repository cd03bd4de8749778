import t, { type Test } from 'tap';
import { createApp } from '../../env-server/app.ts';
import type { Json } from '../../shared/json.ts';
import { testApp } from '../../test/app.test-data.ts';
import { describe, Episode } from './episode.ts';
import { canUndo, DEFAULT_SETUP, observationOf, totalReward } from './session-state.ts';
import { type BatchReply, batchServer, type EnvironmentServer } from './wire.ts';

/** An environment server without a socket. */
async function serverOf(t: Test) {
  const app = await testApp(t);
  const server = batchServer(async items => {
    const reply = await app.ask('POST', '/v1/batch', { items } as unknown as Json);
    return reply.body.results as unknown as readonly BatchReply[];
  });
  return { ...app, server };
}

const LONG = { ...DEFAULT_SETUP, config: { goal: 5000, max_steps: 5000 } };

async function begin(server: EnvironmentServer): Promise<Episode> {
  const environment = await describe(server, 'test/Counter-v0', LONG);
  return Episode.begin(server, environment, LONG, { seed: 7 });
}

t.test('undo goes back step by step, also over steps taken elsewhere', async t => {
  const { server, ask } = await serverOf(t);
  const episode = await begin(server);
  t.notOk(canUndo(episode.state));
  const start = observationOf(episode.state);
  await episode.step('draw');
  const drawn = observationOf(episode.state);
  await episode.step('add');
  await ask('POST', `/v1/sessions/${episode.state.session.session_id}/step`, { action: 'add' });
  await episode.step('add');
  t.equal(episode.state.moves.length, 4);
  t.equal(totalReward(episode.state), 3);
  t.notOk(canUndo(episode.state), 'the state before the last step was not seen');
  await episode.step('draw');
  await episode.undo();
  t.equal(episode.state.moves.length, 4);

  await episode.reset(7);
  t.equal(observationOf(episode.state), start);
  await episode.step('draw');
  t.equal(observationOf(episode.state), drawn);
  await episode.undo();
  t.equal(observationOf(episode.state), start);
  t.same(episode.state.moves, []);
});

t.test('an episode is taken over from its actions; one that is refused says why', async t => {
  const { server } = await serverOf(t);
  const first = await begin(server);
  for (const action of ['add', 'draw', 'add']) await first.step(action);
  const second = await begin(server);
  await second.repeat(['add', 'draw', 'add']);
  t.same(
    second.state.moves,
    first.state.moves.map(({ action, observation, reward, terminated, truncated, info }) => ({
      action,
      observation,
      reward,
      terminated,
      truncated,
      info,
    })),
  );
  t.equal(totalReward(second.state), 2);
  for (const { observation } of [...first.state.moves.slice(0, -1)].reverse()) {
    t.ok(canUndo(second.state));
    await second.undo();
    t.equal(observationOf(second.state), observation);
  }
  await second.undo();
  t.equal(observationOf(second.state), observationOf((await begin(server)).state), 'back at the start');
  t.notOk(canUndo(second.state));
  const refusal = await second.repeat(['add', {}]).catch(error => error);
  t.match(refusal, { name: 'RequestFailed', problem: { code: 'invalid_action' } });
});

t.test('an episode that changed its dynamics seed is repeated with the same chance', async t => {
  const { server } = await serverOf(t);
  const first = await begin(server);
  const { session_id } = first.state.session;
  const reseeds = [
    { step: 1, dynamics_seed: 5 },
    { step: 3, dynamics_seed: 6 },
  ];
  // As a tree does: a clone continues with a separate stream.
  let id: unknown = session_id;
  const seen: unknown[] = [];
  for (let step = 0; step < 5; step++) {
    const reseed = reseeds.find(one => one.step === step);
    if (reseed) {
      const { sessions } = await server.run<{ sessions: { session_id: string }[] }>('clone' as 'step', {
        session_id: id,
        dynamics_seed: reseed.dynamics_seed,
      });
      id = sessions[0].session_id;
    }
    const { observation } = await server.run<{ observation: unknown }>('step', {
      session_id: id,
      action: 'draw',
    });
    seen.push(observation);
  }
  const second = await begin(server);
  await second.repeat(['draw', 'draw', 'draw'], [...reseeds, { step: 4, dynamics_seed: 7 }]);
  t.same(
    second.state.moves.map(({ observation }) => observation),
    seen.slice(0, 3),
  );
  await second.step('draw');
  await second.undo();
  await second.step('draw');
  await second.step('draw');
  t.same(
    second.state.moves.map(({ observation }) => observation),
    seen,
    'also from there on, and after Undo',
  );
  const plain = await begin(server);
  await plain.repeat(['draw', 'draw', 'draw']);
  t.not(plain.state.moves[2].observation, seen[2], 'its own chance is another one');
  const atStart = await begin(server);
  await atStart.repeat([], [{ step: 0, dynamics_seed: 5 }]);
  await atStart.step('draw');
  const drawn = observationOf(atStart.state);
  await atStart.undo();
  await atStart.step('draw');
  t.equal(observationOf(atStart.state), drawn);
  t.not(drawn, seen[0]);
});

t.test('a session at its limit of snapshots is reported, and a reset opens another one', async t => {
  const { server, ask } = await serverOf(t);
  const episode = await begin(server);
  const { session_id: old } = episode.state.session;
  await episode.reset(1);
  t.equal(episode.state.session.session_id, old, 'not before there is need');
  while (episode.state.undoProblem === undefined) await episode.step('draw');
  t.match(episode.state.undoProblem, /1024 snapshots/);
  await episode.step('draw');
  t.notOk(canUndo(episode.state));
  await episode.reset(7);
  t.not(episode.state.session.session_id, old);
  t.equal((await ask('GET', `/v1/sessions/${old}`)).status, 410);
  await episode.step('draw');
  t.ok(canUndo(episode.state));
  t.equal(episode.state.undoProblem, undefined);
});

t.test(
  'after a failure the best player says what it would have done in place of the last action',
  async t => {
    const app = await createApp({ logLevel: 'silent' });
    t.teardown(() => app.server.close());
    const server = batchServer(async items => {
      const reply = await app.server.inject({ method: 'POST', url: '/v1/batch', payload: { items } });
      return reply.json().results;
    });
    const begin = async (envId: string, seed: number) =>
      Episode.begin(server, await describe(server, envId, DEFAULT_SETUP), DEFAULT_SETUP, { seed });
    const sum = await begin('Countdown-v0', 7);
    await sum.step('1 + 1');
    await sum.explain('optimal');
    const { policy, action } = sum.state.better!;
    t.equal(policy, 'optimal');
    await sum.undo();
    t.equal(sum.state.better, undefined, 'no longer after Undo');
    await sum.step(action);
    t.equal(sum.state.moves.at(-1)!.info.success, true, `${action} is right`);
    await sum.explain('optimal');
    t.equal(sum.state.better, undefined, 'nothing is better than the same action');

    const lake = await begin('FrozenLake-v0', 7);
    for (const move of ['Right', 'Down', 'Left']) await lake.step(move);
    const twin = await begin('FrozenLake-v0', 7);
    for (const move of ['Right', 'Down']) await twin.step(move);
    const best = await twin.plan('optimal');
    await lake.explain('optimal');
    t.not(best, 'Left');
    t.equal(lake.state.better?.action, best, 'in the state before the last action');
    const other = await begin('FrozenLake-v0', 7);
    await other.repeat(['Right', 'Down', 'Left'], [{ step: 1, dynamics_seed: 9 }]);
    await other.explain('optimal');
    t.equal(other.state.better, undefined, 'not where the episode changed its chance');
  },
);
