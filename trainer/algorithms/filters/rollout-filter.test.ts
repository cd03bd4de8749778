import t from 'tap';
import { filterGroups } from '../../data/filtering.ts';
import { checkFilterSettings, DEFAULT_FILTER_SETTINGS, type FilterSettings } from './settings.ts';

const groups = [
  { rewards: [1, 1], entropies: [0.2, 0.4], lengths: [10, 20] },
  { rewards: [0, 4], entropies: [0.5, 0.5], lengths: [5, 5] },
  { rewards: [-1, 2], entropies: [0.1, 0.9], lengths: [40, 40] },
];
const best = (score: FilterSettings['score']) =>
  filterGroups(groups, { ...DEFAULT_FILTER_SETTINGS, strategy: 'top_k_abs', value: 1, score });

t.test('each score looks at its own side of a group', async t => {
  t.same(best('reward_std').kept, [1]);
  t.same(best('reward_max').kept, [1]);
  t.same(best('entropy_std').kept, [2]);
  t.same(best('length').kept, [2]);
  t.equal(best('entropy').metrics['rollout/chosen_in_group_entropy_mean'], 0.5);
  t.equal(best('length').metrics['rollout/in_group_length_max'], 65 / 3);
});

t.test('defaults keep everything', async t => {
  const { kept, metrics } = filterGroups(groups, DEFAULT_FILTER_SETTINGS);
  t.same(kept, [0, 1, 2]);
  t.equal(metrics['rollout/filter_kept_ratio'], 1);
  t.equal(metrics['rollout/filter_zero_count'], 1);
});

t.test('a filter score refuses missing inputs', async t => {
  t.throws(() => filterGroups([{ rewards: [1] }], { ...DEFAULT_FILTER_SETTINGS, score: 'entropy' }), {
    message: 'filter score entropy needs entropies of group 0',
  });
});

t.test('settings without meaning are refused with the reason', async t => {
  const refuse = (change: Partial<FilterSettings>, groupSize: number, message: string) =>
    t.throws(() => checkFilterSettings({ ...DEFAULT_FILTER_SETTINGS, ...change }, groupSize), { message });
  refuse(
    { strategy: 'top_p', value: 1.5 },
    8,
    'filter.value is 1.5; top_p takes a share: above 0, at most 1',
  );
  refuse(
    { strategy: 'top_k_abs', value: 0.5 },
    8,
    'filter.value is 0.5; top_k_abs keeps that many groups: a whole number from 1',
  );
  refuse(
    { strategy: 'top_p', value: 0.9 },
    1,
    'filter.score reward_std compares the episodes of a group, but group_size is 1: use at least 2',
  );
  t.doesNotThrow(() => checkFilterSettings(DEFAULT_FILTER_SETTINGS, 1));
});
