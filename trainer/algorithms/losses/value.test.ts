import t from 'tap';
import { valueLoss } from './reference.test-data.ts';

t.test('a prediction may not improve by moving further than the clip from its old value', async t => {
  const far = valueLoss(1, 0, 1, 0.5);
  t.same(far, { loss: 0.125, derivative: 0, clipped: true });
  const worse = valueLoss(-1, 0, 1, 0.5);
  t.same(worse, { loss: 2, derivative: -2, clipped: false });
});

t.test('clip 0 is plain regression', async t => {
  t.same(valueLoss(1, 0, 1, 0), { loss: 0, derivative: 0, clipped: false });
});
