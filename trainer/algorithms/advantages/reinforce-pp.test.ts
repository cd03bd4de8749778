import t from 'tap';
import { estimateAdvantages } from './registry.ts';

const sequence = { lossMask: [1, 1, 0, 1], rewards: [0, 1, 0, 4], groupId: 0 };

t.test('the reward of a later turn reaches earlier ones, unless cut as verl cuts it', async t => {
  const returns = (acrossTurns: boolean) =>
    Array.from(estimateAdvantages('reinforce_pp', [sequence], { gamma: 0.5, acrossTurns }).returns[0]);
  t.same(returns(true), [1.5, 3, 0, 4]);
  t.same(returns(false), [0.5, 1, 0, 4]);
});

t.test('whitened advantages have mean 0 and unbiased variance 1', async t => {
  const [found] = estimateAdvantages('reinforce_pp', [sequence], { gamma: 0.5 }).advantages;
  const kept = Array.from(found).filter((_, k) => sequence.lossMask[k]);
  t.ok(Math.abs(kept.reduce((a, b) => a + b, 0)) < 1e-12);
  t.ok(Math.abs(kept.reduce((a, b) => a + b * b, 0) / (kept.length - 1) - 1) < 1e-7);
  t.equal(found[2], 0);
});

t.test('a batch of one token has no variance', async t => {
  t.throws(() => estimateAdvantages('reinforce_pp', [{ lossMask: [1], rewards: [1], groupId: 0 }]), {
    message:
      'whitening advantages needs at least two sampled tokens in the batch, got 1: use a larger batch or whiten: false',
  });
});
