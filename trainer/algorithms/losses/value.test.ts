import t from 'tap';
import { explainedVariance, valueLoss } from './value.ts';

t.test('a prediction may not improve by moving further than the clip from its old value', async t => {
  const far = valueLoss(1, 0, 1, 0.5);
  t.same(far, { loss: 0.125, derivative: 0, clipped: true });
  const worse = valueLoss(-1, 0, 1, 0.5);
  t.same(worse, { loss: 2, derivative: -2, clipped: false });
});

t.test('clip 0 is plain regression', async t => {
  t.same(valueLoss(1, 0, 1, 0), { loss: 0, derivative: 0, clipped: false });
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
