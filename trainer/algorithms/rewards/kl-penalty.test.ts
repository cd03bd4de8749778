import t from 'tap';
import { penalizeRewards } from './kl-penalty.ts';

t.test('sampled tokens pay for the distance to the reference, masked tokens keep their reward', async t => {
  const sequence = {
    lossMask: [1, 0, 1],
    rewards: [0, 5, 1],
    logProbs: [-1, Number.NaN, -0.5],
    referenceLogProbs: [-1.5, Number.NaN, -0.5],
  };
  t.same(Array.from(penalizeRewards(sequence, 'k1', 0.1)), [-0.05, 5, 1]);
});
