import t, { type Test } from 'tap';
import type { Json } from '../../shared/json.ts';
import { testApp } from '../../test/app.test-data.ts';
import { type OwnPlayer, PlaySession } from './play-session.ts';
import { type BatchReply, batchServer } from './wire.ts';

/** A session in progress that a player without a server plays. */
async function playedBy(t: Test, next: OwnPlayer) {
  const { ask } = await testApp(t);
  const session = new PlaySession(
    batchServer(async items => {
      const reply = await ask('POST', '/v1/batch', { items } as unknown as Json);
      return reply.body.results as unknown as readonly BatchReply[];
    }),
  );
  session.players.set('own', next);
  await session.open({ envId: 'test/Counter-v0', config: { goal: 5000, max_steps: 5000 } });
  session.store.dispatch({ type: 'policy', policy: 'own' });
  const taken = () => session.store.state.episode!.moves.map(({ action }) => action);
  return { session, taken };
}

t.test('each step of a player is planned after the step before it', async t => {
  const plan = ['add', 'draw', 'add', 'draw', 'add', 'draw'];
  const { session, taken } = await playedBy(t, async moves => plan[moves.length]);
  await Promise.all([session.playOne(), session.playOne(), session.act('draw'), session.playOne()]);
  t.same(taken(), ['draw', 'draw', 'add', 'draw'], 'keys of a person come first');
  await session.playOn();
  t.same(taken(), ['draw', 'draw', 'add', 'draw', 'add', 'draw'], 'it ends where nothing is left for it');
});

t.test('an action that was planned for another state is left out', async t => {
  const planned = Promise.withResolvers<Json>();
  const asked = Promise.withResolvers<void>();
  const { session, taken } = await playedBy(t, () => {
    asked.resolve();
    return planned.promise;
  });
  const played = session.playOne();
  await asked.promise;
  await session.act('draw');
  planned.resolve('add');
  t.notOk(await played);
  t.same(taken(), ['draw']);
});

t.test('a stop drops the steps that wait, and a hung player blocks no later step', async t => {
  let asked = 0;
  let answers: Promise<Json> = new Promise(() => {});
  const { session, taken } = await playedBy(t, () => {
    asked++;
    return answers;
  });
  const presses = Array.from({ length: 1000 }, () => session.playOne());
  t.same(await Promise.all(presses.slice(40)), new Array(960).fill(false), 'a held key adds a few steps');
  session.stop();
  answers = Promise.resolve('add');
  t.ok(await session.playOne());
  t.same([asked, taken()], [2, ['add']]);
});
