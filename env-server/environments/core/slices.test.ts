import t from 'tap';
import { atOnce, type Sliced } from '../../../shared/slices.ts';
import { SLICE_MS, scheduler } from '../../scheduling/fair-scheduler.ts';
import { inScheduledSlices } from './slices.ts';

function* counting(to: number): Sliced<number> {
  let count = 0;
  for (; count < to; count++) yield;
  return count;
}

/** Occupies the event loop for longer than a slice. */
function occupy(): void {
  const end = performance.now() + 1.5 * SLICE_MS;
  while (performance.now() < end);
}

function* slow(order: string[]): Sliced<string> {
  order.push('first part');
  occupy();
  yield;
  order.push('second part');
  return 'done';
}

t.test('work in parts ends with its result', async t => {
  t.equal(atOnce(counting(3)), 3);
  t.equal(await inScheduledSlices(counting(3)), 3);
  t.equal(inScheduledSlices(counting(0)), 0, 'what is short is there at once');
});

t.test('others have their turn between two slices', async t => {
  const order: string[] = [];
  setImmediate(() => order.push('other'));
  t.equal(await inScheduledSlices(slow(order)), 'done');
  t.same(order, ['first part', 'other', 'second part']);
});

t.test('an error ends the work', async t => {
  const failing = function* (long: boolean): Sliced<number> {
    if (long) occupy();
    yield;
    throw new Error('no more');
  };
  t.throws(() => atOnce(failing(false)), /no more/);
  t.throws(() => inScheduledSlices(failing(false)), /no more/);
  await t.rejects(async () => inScheduledSlices(failing(true)), /no more/);
});

t.test('few long computations of a client are in progress; the others have not begun', async t => {
  const order: string[] = [];
  const lane = scheduler.lane('many');
  const results: unknown[] = [];
  lane.run(() => {
    for (let i = 0; i < 6; i++) results.push(inScheduledSlices(slow(order)));
  });
  t.equal(order.filter(part => part === 'first part').length, 4);
  t.same(await Promise.all(results), new Array(6).fill('done'));
  t.equal(order.filter(part => part === 'second part').length, 6);
  t.ok(scheduler.mayCompute(lane), 'all of them are over');
});
