import t from 'tap';
import { crossEntropyLoss } from './policy-reference.test-data.ts';

t.test('each trained token costs its negative log-likelihood', async t => {
  const { losses, derivatives } = crossEntropyLoss({ lossMask: [0, 1, 1], logProbs: [Number.NaN, -2, -0.5] });
  t.same(Array.from(losses), [0, 2, 0.5]);
  t.same(Array.from(derivatives), [0, -1, -1]);
});
