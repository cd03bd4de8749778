import t from 'tap';
import { wilsonInterval } from './statistics.ts';

const rounded = (values: readonly number[]) => values.map(value => Number(value.toFixed(4)));

t.test("Wilson's interval at published values and at the edges", async t => {
  t.same(rounded(wilsonInterval(10, 100)), [0.0552, 0.1744]);
  t.same(rounded(wilsonInterval(0, 20)), [0, 0.1611]);
  t.same(rounded(wilsonInterval(20, 20)), [0.8389, 1]);
  t.same(wilsonInterval(0, 0), [0, 1]);
});
