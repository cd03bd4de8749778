import t from 'tap';
import { learningRateAt, type Schedule } from './schedule.ts';

const linear: Schedule = { peak: 1, warmup: 4, total: 14, decay: 'linear', finalShare: 0.1 };
const rates = (schedule: Schedule, indices: number[]) =>
  indices.map(i => Number(learningRateAt(schedule, i).toFixed(12)));

t.test('warm-up rises linearly and its last unit runs at the peak', async t => {
  t.same(rates(linear, [0, 1, 2, 3, 4]), [0.25, 0.5, 0.75, 1, 1]);
});

t.test('linear and cosine decay end at the final share and stay there', async t => {
  t.same(rates(linear, [9, 14, 99]), [0.55, 0.1, 0.1]);
  t.same(rates({ ...linear, decay: 'cosine' }, [4, 9, 14, 99]), [1, 0.55, 0.1, 0.1]);
});

t.test('a constant rate stays, a peak of 0 never learns', async t => {
  t.same(rates({ ...linear, decay: 'constant' }, [3, 50]), [1, 1]);
  t.same(rates({ ...linear, peak: 0 }, [0, 5]), [0, 0]);
});
