import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import type { PlayedStep } from '../../player/wire.ts';
import { CheckpointPlayer } from './checkpoint-player.ts';

const steps = (...actions: Json[]) => actions.map(action => ({ action }) as PlayedStep);

/** A checkpoint that answers each request with the next of these lists, and the requests. */
function playerOf(floor: number, ...replies: (readonly Json[] | Error)[]) {
  const asked: (readonly Json[])[] = [];
  const player = new CheckpointPlayer(async actions => {
    asked.push(actions);
    const reply = replies.shift()!;
    if (reply instanceof Error) throw reply;
    return { step: 7, actions: reply };
  }, floor);
  return { player, asked };
}

t.test('it plays its plan step by step, and asks once', async t => {
  const { player, asked } = playerOf(1, ['Up', { go: 1 }]);
  const [first, again] = await Promise.all([player.next(steps('old')), player.next(steps('old'))]);
  t.same([first, again], ['Up', 'Up'], 'two steps at once share a request');
  t.equal(player.reply?.step, 7);
  t.same(await player.next(steps('old', 'Up')), { go: 1 });
  t.equal(player.end, undefined);
  t.equal(await player.next(steps('old', 'Up', { go: 1 })), undefined);
  t.equal(player.end, 3);
  t.equal(await player.next(steps('old')), 'Up', 'after Undo the plan is the same');
  t.same(asked, [[]]);
});

t.test('after actions of a person it plans again from there', async t => {
  const { player, asked } = playerOf(0, ['Up', 'Up'], ['Left'], []);
  t.equal(await player.next([]), 'Up');
  t.equal(await player.next(steps('Up', 'Down')), 'Left');
  t.equal(await player.next(steps('Up', 'Down', 'Left')), undefined);
  t.equal(await player.next(steps('Down')), undefined);
  t.same(asked, [[], ['Up', 'Down'], ['Down']]);
});

t.test('a failure is reported, and the next step asks again', async t => {
  const { player, asked } = playerOf(0, new Error('it does not load'), ['Up']);
  await t.rejects(Promise.all([player.next([]), player.next([])]), { message: 'it does not load' });
  t.equal(await player.next([]), 'Up');
  t.equal(asked.length, 2);
});
