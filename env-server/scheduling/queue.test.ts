import t from 'tap';
import { Queue } from './queue.ts';
import { Slots } from './slots.ts';

t.test('a queue is first in, first out, and gives back in front what comes back', t => {
  const queue = new Queue<number>();
  const expected: number[] = [];
  let next = 0;
  for (let round = 0; round < 5000; round++) {
    const count = (round * 7) % 13;
    for (let i = 0; i < count; i++) {
      queue.push(next);
      expected.push(next++);
    }
    if (round % 3 === 0) {
      queue.unshift(-round);
      expected.unshift(-round);
    }
    const taken = round % 100 === 99 ? expected.length : Math.min(expected.length, (round * 5) % 11);
    for (let i = 0; i < taken; i++) {
      if (queue.shift() !== expected.shift()) t.fail(`round ${round}`);
    }
    if (queue.length !== expected.length) t.fail(`length in round ${round}`);
    if (queue.first !== expected[0]) t.fail(`first in round ${round}`);
  }
  while (expected.length > 0) if (queue.shift() !== expected.shift()) t.fail('at the end');
  t.equal(queue.shift(), undefined);
  t.equal(queue.length, 0);
  t.end();
});

t.test('slots are bounded, and clients take turns with what waits', async t => {
  const slots = new Slots(2);
  const order: string[] = [];
  const take = (client: string, name: string) => slots.take(client).then(() => order.push(name));
  const all = Promise.all([
    ...['a1', 'a2', 'a3', 'a4', 'a5'].map(name => take('a', name)),
    ...['b1', 'b2'].map(name => take('b', name)),
  ]);
  await Promise.resolve();
  t.same(order, ['a1', 'a2']);
  for (let i = 0; i < 5; i++) slots.release();
  await all;
  t.same(order, ['a1', 'a2', 'a3', 'b1', 'a4', 'b2', 'a5']);
  for (let i = 0; i < 2; i++) slots.release();
  await Promise.all([take('c', 'c1'), take('c', 'c2')]);
  t.equal(order.length, 9, 'what was given back can be taken');
});
