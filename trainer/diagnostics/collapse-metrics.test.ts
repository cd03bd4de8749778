import { readFileSync } from 'node:fs';
import t from 'tap';
import { type CrossScores, collapseMetrics } from './collapse-metrics.ts';

interface Case {
  readonly group_ids: number[];
  readonly prompts: number[][];
  readonly cross_logp_mean: number[][];
  readonly cross_logp_sum: number[][];
  readonly second_step_scale: number;
  readonly metrics_step1: Record<string, number>;
  readonly metrics_step2: Record<string, number>;
}

const file = new URL('../../test/golden/collapse_metrics.json', import.meta.url);
const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: Case[] };

function scores(data: Case, scale: number): CrossScores {
  const columns = [...new Set(data.group_ids)].sort((a, b) => a - b);
  const scaled = (rows: number[][]) => rows.map(row => row.map(x => x * scale));
  return {
    perToken: scaled(data.cross_logp_mean),
    perSequence: scaled(data.cross_logp_sum),
    matchedColumn: data.group_ids.map(id => columns.indexOf(id)),
    prompts: columns.map(id => data.prompts[data.group_ids.indexOf(id)]),
  };
}

cases.forEach((data, number) => {
  t.test(`golden case ${number}, two steps`, async t => {
    const compare = (found: Record<string, number>, wanted: Record<string, number>, step: string) => {
      for (const [name, value] of Object.entries(wanted)) {
        const difference = Math.abs(found[name] - value);
        t.ok(difference < 1e-4 * Math.max(1, Math.abs(value)), `${step} ${name}`);
      }
      t.same(Object.keys(found).sort(), Object.keys(wanted).sort(), `${step}: the same metrics`);
    };
    const first = collapseMetrics(scores(data, 1), undefined, 'collapse');
    compare(first.metrics, data.metrics_step1, 'step 1');
    const second = collapseMetrics(scores(data, data.second_step_scale), first.state, 'collapse');
    compare(second.metrics, data.metrics_step2, 'step 2');
  });
});

t.test('reasoning that names its prompt has all the information, and finds it', async t => {
  const certain = [0, 1, 2].map(i => [0, 1, 2].map(j => (i === j ? -1 : -100)));
  const { metrics } = collapseMetrics(
    { perToken: certain, perSequence: certain, matchedColumn: [0, 1, 2], prompts: [[1], [2], [3]] },
    undefined,
    'x',
  );
  t.ok(Math.abs(metrics['x/mi_estimate'] - Math.log(3)) < 1e-9);
  t.equal(metrics['x/retrieval_accuracy'], 1);
});

t.test('equal prompts count as one', async t => {
  const rows = [
    [-2, -1],
    [-1, -2],
  ];
  const { metrics } = collapseMetrics(
    { perToken: rows, perSequence: rows, matchedColumn: [0, 1], prompts: [[7], [7]] },
    undefined,
    'x',
  );
  t.equal(metrics['x/retrieval_accuracy'], 1);
  t.equal(metrics['x/retrieval_chance_level'], 1);
});

t.test('a single prompt is refused', async t => {
  const one = { perToken: [[-1]], perSequence: [[-1]], matchedColumn: [0], prompts: [[1]] };
  t.throws(() => collapseMetrics(one, undefined, 'x'), {
    message: 'collapse metrics compare prompts: 1 given, at least 2 needed',
  });
});
