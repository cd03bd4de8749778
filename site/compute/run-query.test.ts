import t from 'tap';
import { groupRuns, parseRunQuery, type QueriedRun, resolvedKey, runMatcher, runOrder } from './run-query.ts';
import type { SettingValue } from './settings-text.ts';

type Run = QueriedRun & { readonly settings: Record<string, SettingValue> };

const run = (id: string, success: number, settings: Run['settings'], tags: string[] = []): Run => ({
  id,
  state: 'finished',
  step: 10,
  seconds: 5,
  started: null,
  updated: 0,
  validations: [
    { step: 0, success: 0.2 },
    { step: 10, success },
  ],
  run: {
    name: id,
    recipe: ['grpo'],
    advantage: 'grpo',
    seed: 1,
    model: 'scratch',
    parameters: null,
    tags: [{ tag: 'Lake', env_id: 'FrozenLake-v0', config: {}, random: null, optimum: null }],
  },
  annotations: { tags, note: 'try it', archived: id === 'old' },
  settings,
});

const RUNS = [
  run('a', 0.5, { 'rollout.group_size': 8, 'optimizer.learning_rate': 1e-3 }, ['baseline']),
  run('b', 0.1, { 'rollout.group_size': 1, 'optimizer.learning_rate': 0.5 }),
  run('c', 0.9, { 'rollout.group_size': 16 }),
  run('old', 0.9, { 'rollout.group_size': 8 }),
];
const setting = ({ settings }: Run, name: string) =>
  settings[resolvedKey(new Set(Object.keys(settings)), name) ?? ''];
const found = (q: string) => RUNS.filter(runMatcher(parseRunQuery(q), setting)).map(({ id }) => id);

t.test('queries match words, fields, settings, tags and archived runs', async t => {
  for (const [q, ids] of [
    ['', ['a', 'b', 'c']],
    ['LAKE grpo', ['a', 'b', 'c']],
    ['improved', ['a', 'c']],
    ['state:worse', ['b']],
    ['group_size>1', ['a', 'c']],
    ['rollout.group_size=8', ['a']],
    ['group_size!=8', ['b', 'c']],
    ['learning_rate<=0.001', ['a']],
    ['learning_rate!=0.001', ['b', 'c']],
    ['env:frozen success>=0.5', ['a', 'c']],
    ['tag:base', ['a']],
    ['baseline', ['a']],
    ['gain<0', ['b']],
    ['nothing=1', []],
    ['is:archived', ['old']],
    ['is:any', ['a', 'b', 'c', 'old']],
    ['__proto__:x', []],
    ['constructor!=1', ['a', 'b', 'c']],
  ] as const)
    t.same(found(q), ids, q);
});

t.test('an order puts runs without the value last, both ways', async t => {
  const order = (sort: string) => RUNS.toSorted(runOrder(sort, setting)).map(({ id }) => id);
  t.same(order('success'), ['b', 'a', 'c', 'old']);
  t.same(order('-group_size'), ['c', 'a', 'old', 'b']);
  t.same(order('learning_rate'), ['a', 'b', 'c', 'old']);
  t.same(order('-learning_rate'), ['b', 'a', 'c', 'old']);
});

t.test('groups have their size and success, the largest first', async t => {
  t.match(groupRuns(RUNS, 'group_size', setting), [
    { value: 8, runs: 2, success: { mean: 0.7, low: 0.5, high: 0.9 }, ids: ['a', 'old'] },
    { value: 1, runs: 1 },
    { value: 16, runs: 1 },
  ]);
});
