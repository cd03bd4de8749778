import t from 'tap';
import { bucketMetrics, planBuckets, planCells } from './gradient-decomposition.ts';

const groups = Array.from({ length: 14 }, (_, i) => ({
  groupId: 100 + i,
  rewardStd: (i * 5) % 14,
  sequences: [2 * i, 2 * i + 1],
}));
const QUANTILE = { count: 6, mode: 'quantile' } as const;
const sizes = (count: number, wanted = 6) =>
  planBuckets(groups.slice(0, count), { count: wanted, mode: 'quantile' }).map(
    bucket => bucket.groups.length,
  );

t.test('groups fall into equal parts by spread, the last with the remainder', async t => {
  t.same(sizes(14), [2, 2, 2, 2, 2, 4]);
  t.same(sizes(8), [1, 1, 1, 1, 1, 3]);
  const buckets = planBuckets(groups, QUANTILE);
  t.same(
    buckets.map(bucket => bucket.name),
    [1, 2, 3, 4, 5, 6].map(i => `bucket_${i}`),
  );
  t.same(
    buckets.flatMap(bucket => bucket.groups.map(group => group.rewardStd)),
    Array.from({ length: 14 }, (_, i) => i),
  );
});

t.test('with fewer groups than buckets each group is one', async t => {
  t.same(sizes(4), [1, 1, 1, 1]);
  t.same(sizes(1), [1]);
  t.same(sizes(14, 3), [4, 4, 6]);
});

t.test('ties are sorted by the number of the group', async t => {
  const alike = [3, 1, 2].map(groupId => ({ groupId, rewardStd: 0, sequences: [] }));
  t.same(
    planBuckets(alike, QUANTILE).map(bucket => bucket.groups[0].groupId),
    [1, 2, 3],
  );
});

t.test('fixed borders leave out empty buckets', async t => {
  const stds = [0, 0.5, 1, 2.5, 5, 9].map((rewardStd, groupId) => ({ groupId, rewardStd, sequences: [] }));
  t.same(
    planBuckets(stds, { count: 6, mode: 'fixed_rv' }).map(({ name, groups }) => [name, groups.length]),
    [
      ['bucket_1', 2],
      ['bucket_2', 1],
      ['bucket_3', 1],
      ['bucket_6', 2],
    ],
  );
});

t.test('cells hold every group once, some of them alone', async t => {
  const buckets = planBuckets(groups, QUANTILE);
  for (const [singles, cells] of [
    [0, 6],
    [16, 14],
    [6, 12],
  ]) {
    const planned = planCells(buckets, singles);
    t.equal(planned.length, cells, `${singles} alone`);
    t.same(
      planned.flatMap(cell => cell.groups.map(group => group.groupId)).sort(),
      groups.map(group => group.groupId),
    );
    t.ok(planned.every(cell => cell.groups.every(group => buckets[cell.bucket].groups.includes(group))));
  }
});

t.test('metrics of a bucket', async t => {
  const bucket = {
    name: 'bucket_1',
    groups: [0, 0, 3].map((rewardStd, groupId) => ({ groupId, rewardStd, sequences: [groupId, 9] })),
  };
  t.same(bucketMetrics('grad_norm', bucket, 12), {
    'grad_norm/bucket_1/sample_count': 6,
    'grad_norm/bucket_1/sample_pct': 0.5,
    'grad_norm/bucket_1/group_rv_count': 3,
    'grad_norm/bucket_1/zero_std_share': 2 / 3,
    'grad_norm/bucket_1/reward_std_mean': 1,
    'grad_norm/bucket_1/reward_std_min': 0,
    'grad_norm/bucket_1/reward_std_max': 3,
  });
});
