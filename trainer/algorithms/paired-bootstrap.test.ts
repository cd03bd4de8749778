import t from 'tap';
import { pairedBootstrap } from './statistics.ts';

t.test('the interval lies between the least and the greatest difference, around their mean', async t => {
  const { difference, low, high, p } = pairedBootstrap([0.5, 0.6, 0.7], [0.6, 0.8, 0.7]);
  t.ok(Math.abs(difference - 0.1) < 1e-12);
  t.ok(low >= -1e-12 && low < difference && difference < high && high <= 0.2 + 1e-12);
  t.equal(p, 0.5, 'of eight sign patterns four are as extreme: a pair without a difference has no sign');
});

t.test('equal signs of n pairs have p = 2^(1 − n), and equal values have p = 1', async t => {
  t.equal(pairedBootstrap([0, 0, 0], [1, 2, 3]).p, 0.25);
  t.equal(pairedBootstrap([0, 0, 0, 0, 0], [1, 2, 3, 4, 5]).p, 1 / 16);
  t.same(pairedBootstrap([1, 2], [1, 2]), { difference: 0, low: 0, high: 0, p: 1 });
});

t.test('equal calls give equal numbers, many pairs too', async t => {
  const many = Array.from({ length: 40 }, (_, i) => Math.sin(i));
  const shifted = many.map((value, i) => value + 0.3 + 0.5 * Math.cos(7 * i));
  const once = pairedBootstrap(many, shifted);
  t.same(pairedBootstrap(many, shifted), once);
  t.ok(once.low > 0 && once.p < 0.05, JSON.stringify(once));
});

t.test('values that are no pairs are refused', async t => {
  t.throws(() => pairedBootstrap([1], [1, 2]), /paired values are wanted, got 1 and 2/);
  t.throws(() => pairedBootstrap([], []), RangeError);
});
