import t from 'tap';
import { topP } from './top-p.ts';

const linear = {
  strategy: 'top_p',
  value: 0.8,
  order: 'largest',
  mass: 'linear',
  includeZero: true,
  epsilon: 0.01,
} as const;
const softmax = { ...linear, mass: 'softmax' } as const;

t.test('linear keeps the fewest groups that hold p of the sum', async t => {
  t.same(topP([1, 5, 4], linear), [1, 2]);
  t.same(topP([1, 5, 4], { ...linear, value: 0.95 }), [1, 2, 0]);
  t.same(topP([3, 3, 3, 3], { ...linear, value: 0.5 }), [0, 1]);
});

t.test('linear keeps none when p of the sum cannot be reached from positive scores', async t => {
  t.same(topP([-1, -2], { ...linear, order: 'smallest', value: 0.5 }), []);
  t.same(topP([0, 0], linear), []);
});

t.test('softmax keeps the fewest groups that hold p of the mass', async t => {
  t.same(topP([0, 10, 0], softmax), [1]);
  t.same(topP([1, 1, 1, 1], softmax), [0, 1, 2, 3]);
  t.same(topP([0, 10, 5], { ...softmax, order: 'smallest' }), [0]);
});

t.test('p = 1 keeps all', async t => {
  t.same(topP([0, -1], { ...linear, value: 1 }), [0, 1]);
});
