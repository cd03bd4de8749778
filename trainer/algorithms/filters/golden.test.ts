import { readFileSync } from 'node:fs';
import t from 'tap';
import { filterGroups, selectGroups } from '../../data/filtering.ts';
import type { FilterStrategy } from './registry.ts';
import type { FilterScore } from './settings.ts';
import type { FilterMass, FilterOrder } from './strategy.ts';

interface Selection {
  readonly scores: number[];
  readonly strategy: FilterStrategy;
  readonly value: number;
  readonly mode: FilterMass;
  readonly type: FilterOrder;
  readonly include_zero: boolean;
  readonly selected_sorted: number[];
}
interface Full {
  readonly metric: string;
  readonly strategy: FilterStrategy;
  readonly value: number;
  readonly mode: FilterMass;
  readonly include_zero: boolean;
  readonly scores: number[][];
  readonly kept_samples: number[];
  readonly reward_std_kept: number[];
  readonly metrics: Record<string, number>;
}

const file = new URL('../../../test/golden/rollout_filter.json', import.meta.url);
const golden = JSON.parse(readFileSync(file, 'utf8')) as { selection: Selection[]; full: Full[] };

t.test('golden selections: strategy by value by order by mass', async t => {
  for (const item of golden.selection) {
    const { strategy, value, mode: mass, type: order, include_zero: includeZero } = item;
    const kept = selectGroups(item.scores, { strategy, value, mass, order, includeZero, epsilon: 0.01 });
    const scores = (positions: number[]) => positions.map(i => item.scores[i]).sort((a, b) => a - b);
    const wanted = scores(item.selected_sorted);
    const found = scores(kept);
    const same = found.length === wanted.length && found.every((score, i) => score === wanted[i]);
    if (!same) t.fail(JSON.stringify({ ...item, found: kept }));
  }
  t.ok(golden.selection.length > 600);
});

const SCORES: Readonly<Record<string, FilterScore>> = {
  reward_variance: 'reward_std',
  reward: 'reward_mean',
  reward_sum: 'reward_sum',
};

golden.full.forEach((item, number) => {
  t.test(`golden filter run ${number}: ${item.metric} ${item.strategy} ${item.mode}`, async t => {
    const { kept, metrics } = filterGroups(
      item.scores.map(rewards => ({ rewards })),
      {
        score: SCORES[item.metric],
        strategy: item.strategy,
        value: item.value,
        mass: item.mode,
        order: 'largest',
        includeZero: item.include_zero,
        epsilon: 0.01,
      },
    );
    const size = item.scores[0].length;
    const samples = kept.flatMap(group => Array.from({ length: size }, (_, i) => group * size + i));
    t.same(samples, item.kept_samples);
    for (const [name, wanted] of Object.entries(item.metrics)) {
      t.ok(Math.abs(metrics[name] - wanted) < 1e-5 * Math.max(1, Math.abs(wanted)), name);
    }
    t.same(Object.keys(metrics).sort(), Object.keys(item.metrics).sort(), 'the same metrics');
  });
});
