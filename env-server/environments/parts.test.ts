import t from 'tap';
import { SLICE_MS, turns } from '../scheduling/turns.ts';
import { atOnce, inTurns, type Parts } from './parts.ts';

function* counting(to: number): Parts<number> {
  let count = 0;
  for (; count < to; count++) yield;
  return count;
}

/** Occupies the event loop for longer than a slice. */
function occupy(): void {
  const end = performance.now() + 1.5 * SLICE_MS;
  while (performance.now() < end);
}

function* slow(order: string[]): Parts<string> {
  order.push('first part');
  occupy();
  yield;
  order.push('second part');
  return 'done';
}

t.test('work in parts ends with its result', async t => {
  t.equal(atOnce(counting(3)), 3);
  t.equal(await inTurns(counting(3)), 3);
  t.equal(inTurns(counting(0)), 0, 'what is short is there at once');
});

t.test('others have their turn between two slices', async t => {
  const order: string[] = [];
  setImmediate(() => order.push('other'));
  t.equal(await inTurns(slow(order)), 'done');
  t.same(order, ['first part', 'other', 'second part']);
});

t.test('an error ends the work', async t => {
  const failing = function* (long: boolean): Parts<number> {
    if (long) occupy();
    yield;
    throw new Error('no more');
  };
  t.throws(() => atOnce(failing(false)), /no more/);
  t.throws(() => inTurns(failing(false)), /no more/);
  await t.rejects(async () => inTurns(failing(true)), /no more/);
});

t.test('few long computations of a client are under way; the others have not begun', async t => {
  const order: string[] = [];
  const lane = turns.lane('many');
  const results: unknown[] = [];
  lane.run(() => {
    for (let i = 0; i < 6; i++) results.push(inTurns(slow(order)));
  });
  t.equal(order.filter(part => part === 'first part').length, 4);
  t.same(await Promise.all(results), new Array(6).fill('done'));
  t.equal(order.filter(part => part === 'second part').length, 6);
  t.ok(turns.mayCompute(lane), 'all of them are over');
});
