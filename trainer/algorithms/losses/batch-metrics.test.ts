import t from 'tap';
import { batchMetrics, explainedVariance } from './batch-metrics.ts';
import { DEFAULT_LOSS_SETTINGS } from './settings.ts';

const sequence = {
  tokenIds: new Int32Array(3),
  lossMask: Uint8Array.of(0, 1, 1),
  logProbs: Float32Array.of(0, -1, -2),
  proximalLogProbs: Float32Array.of(0, -1.5, -1.5),
  advantages: new Float32Array(3),
  values: Float32Array.of(9, 1, 3),
  returns: Float32Array.of(9, 1, 3),
};

t.test('values that equal the returns explain all', async t => {
  t.same(batchMetrics([sequence], DEFAULT_LOSS_SETTINGS), {
    'critic/vf_explained_var': 1,
    'critic/values/mean': 2,
    'critic/returns/mean': 2,
  });
});

t.test('the distance between behavior and proximal policy is logged where it matters', async t => {
  const { values: _, ...rest } = sequence;
  const found = batchMetrics([rest], { ...DEFAULT_LOSS_SETTINGS, policy: 'decoupled_ppo' });
  t.equal(found['actor/mismatch_kl'], 0);
  t.ok(Math.abs(found['actor/off_policy_weight/max'] - Math.exp(0.5)) < 1e-9);
  t.equal(found['actor/off_policy_zero_frac'], 0);
  t.same(
    Object.keys(found).filter(name => name.startsWith('critic')),
    [],
  );
});

t.test('padding is not counted', async t => {
  const padding = { ...sequence, weight: 0, returns: Float32Array.of(0, 100, -100) };
  t.equal(batchMetrics([sequence, padding], DEFAULT_LOSS_SETTINGS)['critic/vf_explained_var'], 1);
});

t.test(
  'explained variance is 1 for the returns themselves, 0 for a constant, negative for worse',
  async t => {
    const returns = [0, 1, 2, 3];
    t.equal(explainedVariance(returns, returns), 1);
    t.ok(Math.abs(explainedVariance([7, 7, 7, 7], returns)) < 1e-4);
    t.ok(explainedVariance([3, 2, 1, 0], returns) < -2);
  },
);
