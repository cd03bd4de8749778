import t from 'tap';
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
