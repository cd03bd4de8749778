import t from 'tap';
import { minP } from './min-p.ts';

const settings = {
  strategy: 'min_p',
  value: 0.5,
  order: 'largest',
  mass: 'linear',
  includeZero: true,
  epsilon: 0.01,
} as const;

t.test('groups within a factor of the best are kept', async t => {
  t.same(minP([1, 4, 2, 1.9], settings), [1, 2]);
  t.same(minP([1, 4, 2, 1.9], { ...settings, order: 'smallest' }), [0, 2, 3]);
});
