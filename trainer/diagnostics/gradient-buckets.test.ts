import t from 'tap';
import { DEFAULT_LOSS_SETTINGS } from '../algorithms/losses/settings.ts';
import { componentMetrics, componentPass, planBuckets } from './gradient-buckets.ts';

const groups = Array.from({ length: 14 }, (_, i) => ({
  groupId: 100 + i,
  rewardStd: (i * 5) % 14,
  sequences: [2 * i, 2 * i + 1],
}));

t.test('groups fall into six parts by spread, the last with the remainder', async t => {
  const buckets = planBuckets(groups);
  t.same(
    buckets.map(bucket => [bucket.name, bucket.groupIds.length]),
    [
      ['all', 14],
      ['bucket_1', 2],
      ['bucket_2', 2],
      ['bucket_3', 2],
      ['bucket_4', 2],
      ['bucket_5', 2],
      ['bucket_6', 4],
    ],
  );
  const stds = new Map(groups.map(group => [group.groupId, group.rewardStd]));
  t.same(
    buckets.slice(1).flatMap(bucket => bucket.groupIds.map(id => stds.get(id))),
    Array.from({ length: 14 }, (_, i) => i),
  );
  t.equal(buckets[6].metrics['grad_norm/bucket_6/reward_std_min'], 10);
  t.equal(buckets[6].metrics['grad_norm/bucket_6/reward_std_max'], 13);
  t.equal(buckets[6].metrics['grad_norm/bucket_6/sample_pct'], 4 / 14);
});

t.test('with fewer groups than buckets only the last is filled', async t => {
  t.same(
    planBuckets(groups.slice(0, 4)).map(bucket => bucket.name),
    ['all', 'bucket_6'],
  );
});

t.test('a pass holds one component', async t => {
  const settings = {
    ...DEFAULT_LOSS_SETTINGS,
    entropyCoefficient: 0.1,
    kl: { estimator: 'k3' as const, coefficient: 0.2 },
  };
  const sequence = {
    tokenIds: new Int32Array(1),
    lossMask: Uint8Array.of(1),
    logProbs: Float32Array.of(-1),
    advantages: Float32Array.of(2),
  };
  const pass = (component: 'task' | 'entropy' | 'kl') => {
    const { batch, settings: own } = componentPass(component, { sequences: [sequence] }, settings);
    const [advantage] = batch.sequences[0].advantages;
    return [advantage, own.entropyCoefficient, own.kl.coefficient, own.value.coefficient];
  };
  t.same(pass('task'), [2, 0, 0, 0]);
  t.same(pass('entropy'), [0, 0.1, 0, 0]);
  t.same(pass('kl'), [0, 0, 0.2, 0]);
});

t.test('norms are also given per sample and per token', async t => {
  t.same(componentMetrics('all', 'kl', { norm: 6, loss: 0.5 }, { sequences: 3, tokens: 12 }), {
    'grad_norm/all/kl': 6,
    'grad_norm/all/per_sample/kl': 2,
    'grad_norm/all/per_token/kl': 0.5,
    'grad_norm/all/loss/kl': 0.5,
  });
});
