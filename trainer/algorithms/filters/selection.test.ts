import t from 'tap';
import { selectGroups } from '../../data/filtering.ts';
import type { SelectionSettings } from './settings.ts';

const settings: SelectionSettings = {
  strategy: 'top_p',
  value: 0.9,
  order: 'largest',
  mass: 'linear',
  includeZero: true,
  epsilon: 0.01,
};

t.test('defaults keep everything; zero scores are dropped only with includeZero false', async t => {
  const scores = [0, 2, 0, 1];
  t.same(selectGroups(scores, { ...settings, strategy: 'none' }), [0, 1, 2, 3]);
  t.same(selectGroups(scores, { ...settings, strategy: 'none', includeZero: false }), [1, 3]);
  t.same(selectGroups([0, 0], { ...settings, includeZero: false }), []);
});

t.test('an unknown strategy is refused with the valid ones', async t => {
  t.throws(() => selectGroups([1], { ...settings, strategy: 'top' as 'top_p' }), {
    message: 'no filter strategy "top"; choose one of none, top_p, top_k, top_k_abs, min_p',
  });
});
