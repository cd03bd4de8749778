import t from 'tap';
import { selectGroups } from '../../data/filtering.ts';
import type { SelectionSettings } from './registry.ts';
import { DEFAULT_FILTER_SETTINGS } from './registry.ts';
import { minP, topK, topKAbs, topP } from './strategy.ts';

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

const nucleus: SelectionSettings = { ...DEFAULT_FILTER_SETTINGS, strategy: 'top_p', value: 0.9 };
const settings = { ...nucleus, value: 0.5 };

t.test('a share counts all groups, also those dropped for a score of zero', async t => {
  t.same(topK([3, 9, 1], settings, 3), [1]);
  t.same(topK([3, 9, 1], settings, 5), [1, 0]);
  t.same(topK([3, 9, 1], { ...settings, order: 'smallest' }, 5), [2, 0]);
});

t.test('at least one group is kept, at most all', async t => {
  t.same(topK([3, 9, 1], { ...settings, value: 0.1 }, 3), [1]);
  t.same(topKAbs([3, 9, 1], { ...settings, value: 7 }), [1, 0, 2]);
});

t.test('groups within a factor of the best are kept', async t => {
  t.same(minP([1, 4, 2, 1.9], settings), [1, 2]);
  t.same(minP([1, 4, 2, 1.9], { ...settings, order: 'smallest' }), [0, 2, 3]);
});

t.test('defaults keep everything; zero scores are dropped only with includeZero false', async t => {
  const scores = [0, 2, 0, 1];
  t.same(selectGroups(scores, { ...nucleus, strategy: 'none' }), [0, 1, 2, 3]);
  t.same(selectGroups(scores, { ...nucleus, strategy: 'none', includeZero: false }), [1, 3]);
  t.same(selectGroups([0, 0], { ...nucleus, includeZero: false }), []);
});

t.test('an unknown strategy is refused with the valid ones', async t => {
  t.throws(() => selectGroups([1], { ...nucleus, strategy: 'top' as 'top_p' }), {
    message: 'no filter strategy "top"; choose one of none, top_p, top_k, top_k_abs, min_p',
  });
});
