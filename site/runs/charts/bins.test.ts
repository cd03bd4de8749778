import t from 'tap';
import { binsOf } from '../views/rollouts.ts';

t.test('few different values have one bar each, and rounding adds none', async t => {
  t.same(binsOf([1, 0, 0.1 + 0.2, 0.3, 0, -0.1, Number.NaN]), [
    { low: -0.1, high: -0.1, count: 1 },
    { low: 0, high: 0, count: 2 },
    { low: 0.3, high: 0.1 + 0.2, count: 2 },
    { low: 1, high: 1, count: 1 },
  ]);
  t.same(binsOf([]), []);
});

t.test('many values share bars of equal width, each with its smallest and largest value', async t => {
  const values = Array.from({ length: 100 }, (_, i) => i / 99);
  const bins = binsOf(values);
  t.equal(bins.length, 12);
  t.equal(
    bins.reduce((sum, { count }) => sum + count, 0),
    100,
  );
  for (const [i, { low, high, count }] of bins.entries()) {
    t.equal(values.filter(value => value >= low && value <= high).length, count, `bar ${i} filters its own`);
  }
});
