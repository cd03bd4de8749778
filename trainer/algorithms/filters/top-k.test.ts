import t from 'tap';
import { topK, topKAbs } from './top-k.ts';

const settings = {
  strategy: 'top_k',
  value: 0.5,
  order: 'largest',
  mass: 'linear',
  includeZero: true,
  epsilon: 0.01,
} as const;

t.test('a share counts all groups, also those dropped for a score of zero', async t => {
  t.same(topK([3, 9, 1], settings, 3), [1]);
  t.same(topK([3, 9, 1], settings, 5), [1, 0]);
  t.same(topK([3, 9, 1], { ...settings, order: 'smallest' }, 5), [2, 0]);
});

t.test('at least one group is kept, at most all', async t => {
  t.same(topK([3, 9, 1], { ...settings, value: 0.1 }, 3), [1]);
  t.same(topKAbs([3, 9, 1], { ...settings, value: 7 }), [1, 0, 2]);
});
