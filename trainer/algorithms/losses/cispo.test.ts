import t from 'tap';
import { cispoLoss, ppoLoss } from './policy-reference.test-data.ts';

t.test('tokens that PPO would drop keep a gradient of bounded size', async t => {
  const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 0 };
  const input = { lossMask: [1, 1], logProbs: [-1, -1], oldLogProbs: [-2, 0], advantages: [1, -1] };
  t.same(Array.from(ppoLoss(input, clip).derivatives).map(Math.abs), [0, 0]);
  t.same(Array.from(cispoLoss(input, clip).derivatives), [-1.28, 0.8]);
  t.same(Array.from(cispoLoss(input, clip).clipped), [1, 1]);
});
