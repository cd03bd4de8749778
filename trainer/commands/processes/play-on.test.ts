import t from 'tap';
import { asked, MAX_MS } from './checkpoints.test-data.ts';

t.test('a checkpoint plays on after actions of a person', { timeout: MAX_MS }, async t => {
  const { place, send, record } = await asked(t);
  const most = record.turns[1].actions_left;
  const playOn = async (actions: unknown) => send({ action: 'play_on', ...place, actions });
  const one = await playOn(['Down']);
  t.equal(one.status, 200, JSON.stringify(one.body));
  t.ok(one.body.actions.length < most, `${one.body.actions.length} of ${most} actions less one`);
  // The caps of the run count turns of people, too: three turns, of which the first is the episode's.
  t.match(await playOn(['Down', 2]), { status: 200, body: { actions: [] } });
  t.match(await playOn(['Down', 2, 2, 2]), { status: 200, body: { actions: [] } });
  t.match(await playOn(['fly']), { status: 409, body: { detail: /"fly"/ } });
  t.match(await playOn('Up'), { status: 400, body: { detail: /`actions` must be a list/ } });
  t.match(await send({ action: 'ask', ...place, actions: [] }), { status: 400 });
});

t.test('a checkpoint plays on from a try of a tree, with its chance', { timeout: MAX_MS }, async t => {
  const { place, send, records } = await asked(t, undefined, {
    rollout: { tree: { where: 'drawn', roots: 2 } },
    algorithm: { advantage: 'tree_loo', mini_batch_size: 16 },
  });
  const tries = records.flatMap(({ reseeds = [], turns }, index) => {
    let done = 0;
    const before = turns.map(({ sent, actions }) => {
      done += (sent ?? actions).length;
      return done;
    });
    const turn = 1 + before.findIndex(step => reseeds[0]?.step < step);
    return reseeds.length > 0 && turn < turns.length ? [{ index, turn }] : [];
  });
  t.ok(tries.length > 0, 'some try changed its chance before its last turn');
  for (const at of tries.slice(0, 2)) {
    const reply = await send({ action: 'play_on', ...place, ...at });
    t.equal(reply.status, 200, JSON.stringify(reply.body));
  }
});
