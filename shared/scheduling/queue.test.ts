import t from 'tap';
import { Queue } from './slots.ts';

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
