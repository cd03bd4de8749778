import t from 'tap';
import { mixSeed } from './seeds.ts';

t.test('any change of a part gives another seed', async t => {
  const seeds = new Set<number>();
  for (let a = 0; a < 40; a++) {
    for (let b = 0; b < 40; b++) for (const c of [0, 1, 2 ** 32, 2 ** 40]) seeds.add(mixSeed(a, b, c));
  }
  t.equal(seeds.size, 40 * 40 * 4);
  t.not(mixSeed(1, 2), mixSeed(2, 1));
  t.not(mixSeed(1), mixSeed(1, 0));
  t.equal(mixSeed(10_000, 3, 1), mixSeed(10_000, 3, 1));
  t.ok([...seeds].every(seed => Number.isInteger(seed) && seed >= 0));
});
