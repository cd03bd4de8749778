import t from 'tap';
import { mixSeed } from './seeds.ts';
import { planGroups } from './tag.ts';

t.test('every group has its own seed, counted up over the tags', async t => {
  const plans = planGroups({
    tags: [
      { tag: 'a', groups: 2 },
      { tag: 'b', groups: 1 },
    ],
    groupSize: 4,
    firstSeed: 10_000,
  });
  t.same(plans, [
    { groupId: 0, tag: 'a', seed: 10_000, size: 4 },
    { groupId: 1, tag: 'a', seed: 10_001, size: 4 },
    { groupId: 2, tag: 'b', seed: 10_002, size: 4 },
  ]);
});

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
