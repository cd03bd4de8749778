import { readFileSync } from 'node:fs';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { type CrossScores, collapseMetrics as measured } from './collapse-metrics.ts';

const CONSTANTS = { std_eps: 1e-3, ema_decay: 0.9 };
const collapseMetrics = (scores: CrossScores, previous: Parameters<typeof measured>[1], series: string) =>
  measured(scores, previous, series, CONSTANTS);

interface Case {
  readonly group_ids: number[];
  readonly prompts: number[][];
  readonly cross_logp_mean: number[][];
  readonly cross_logp_sum: number[][];
  readonly second_step_scale: number;
  readonly metrics_step1: Record<string, number>;
  readonly metrics_step2: Record<string, number>;
}

const file = new URL('../../../test/golden/collapse_metrics.json', import.meta.url);
const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: Case[] };

const OURS = ['mi_seq_share', 'mi_club_estimate', 'mi_club_seq_estimate'].map(name => `collapse/${name}`);

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
      const upstream = Object.keys(found).filter(name => !OURS.includes(name));
      t.same(upstream.sort(), Object.keys(wanted).sort(), `${step}: the same metrics`);
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

/** Scores of thoughts by the log-probabilities of their tokens under each prompt. */
function scoresOf(
  rows: readonly (readonly (readonly number[])[])[],
  matchedColumn: readonly number[],
  prompts: readonly number[][],
): CrossScores {
  const perSequence = rows.map(row => row.map(tokens => tokens.reduce((sum, x) => sum + x, 0)));
  const perToken = perSequence.map((row, i) => row.map(sum => sum / rows[i][0].length));
  return { perToken, perSequence, matchedColumn, prompts };
}

/** Token probabilities of three thoughts under the prompts of groups 7 and 9. */
const WORKED = scoresOf(
  [
    [
      [1 / 2, 1 / 4],
      [1 / 8, 1 / 4],
    ],
    [[1 / 2], [1 / 2]],
    [
      [1 / 4, 1 / 4],
      [1 / 2, 1 / 2],
    ],
  ].map(row => row.map(tokens => tokens.map(Math.log))),
  [0, 0, 1],
  [[7], [9]],
);

t.test('worked example by hand', async t => {
  const near = (found: Record<string, number>, wanted: Record<string, number>) => {
    for (const [name, value] of Object.entries(wanted)) {
      t.ok(Math.abs(found[`x/${name}`] - value) < 1e-6, `${name}: ${found[`x/${name}`]} is ${value}`);
    }
  };
  const first = collapseMetrics(WORKED, undefined, 'x');
  near(first.metrics, {
    mi_seq_estimate: (2 / 3) * Math.log(1.6),
    mi_seq_share: ((2 / 3) * Math.log(1.6)) / Math.log(2),
    conditional_entropy_seq_est: 2 * Math.log(2),
    reasoning_entropy_seq_est: 1.69963,
    mi_club_seq_estimate: (2 / 3) * Math.LN2,
    mi_club_estimate: (1 / 3) * Math.LN2,
    mi_estimate: (2 / 3) * Math.log(4 / 3),
    conditional_entropy_est: (3.5 / 3) * Math.log(2),
    reasoning_entropy_est: (1.327403 + Math.LN2 + 0.980829) / 3,
    mi_upper_bound: Math.log(2),
    marginal_std: 0.259306,
    marginal_std_seq: 0.765885,
    mi_zscore: 0.73678,
    mi_zscore_seq: 0.408583,
    marginal_std_ema: 0.259306,
    retrieval_accuracy: 1,
    retrieval_chance_level: 0.5,
    retrieval_above_chance: 0.5,
    'retrieval_accuracy@2': 1,
    'retrieval_chance_level@4': 1,
    'retrieval_above_chance@8': 0,
  });
  const again = collapseMetrics(WORKED, { marginalStd: 0.5, marginalStdSeq: 0.5 }, 'x');
  near(again.metrics, {
    marginal_std_ema: 0.475931,
    marginal_std_ema_seq: 0.526588,
    mi_zscore_ema: 0.40213,
    mi_zscore_ema_seq: 0.593902,
  });
});

t.test(
  'thoughts that name their prompts have all the information, however many columns a prompt has',
  async t => {
    const share = (prompts: readonly number[][]) => {
      const rows = prompts.map(([own]) => prompts.map(([other]) => (own === other ? -1 : -100)));
      const scores = { perToken: rows, perSequence: rows, matchedColumn: prompts.map((_, i) => i), prompts };
      return collapseMetrics(scores, undefined, 'x').metrics;
    };
    for (const prompts of [
      [[1], [2], [3]],
      [[1], [2], [2]],
      [[1], [1], [2], [2]],
      [[1], [2], [2], [2]],
    ]) {
      const { 'x/mi_seq_share': found, 'x/mi_upper_bound': bound } = share(prompts);
      t.ok(Math.abs(found - 1) < 1e-9, `${prompts.join(' ')}: ${found}`);
      t.equal(bound, Math.log(prompts.length));
    }
    t.notOk('x/mi_seq_share' in share([[1], [1]]), 'of nothing there is no share');
  },
);

t.test('past its bound the share says nothing, and CLUB still shows what a thought loses', async t => {
  const thoughts = (gap: number) => {
    const rows = [0, 1, 2, 3].map(i => [0, 1, 2, 3].map(j => (i === j ? -20 : -20 - gap)));
    const perToken = rows.map(row => row.map(sum => sum / 10));
    const prompts = [[0], [1], [2], [3]];
    const scores = { perToken, perSequence: rows, matchedColumn: [0, 1, 2, 3], prompts };
    return collapseMetrics(scores, undefined, 'x').metrics;
  };
  const [rich, poor] = [thoughts(80), thoughts(16)];
  t.ok(rich['x/mi_seq_share'] - poor['x/mi_seq_share'] < 1e-6);
  t.ok(Math.abs(rich['x/mi_club_seq_estimate'] - 60) < 1e-9);
  t.ok(Math.abs(poor['x/mi_club_seq_estimate'] - 12) < 1e-9);
  t.ok(Math.abs(poor['x/mi_club_estimate'] - 1.2) < 1e-9);
});

t.test('equal prompts in several columns: any of them is a hit', async t => {
  const rows = [
    [-3, -1, -2],
    [-3, -1, -2],
    [-3, -2, -1],
  ];
  const { metrics } = collapseMetrics(
    { perToken: rows, perSequence: rows, matchedColumn: [0, 1, 2], prompts: [[5], [5], [6]] },
    undefined,
    'x',
  );
  t.ok(Math.abs(metrics['x/retrieval_chance_level'] - 5 / 9) < 1e-12);
  t.equal(metrics['x/retrieval_accuracy'], 1);
});

/** 64 thoughts of a length; under their own prompt 20 nats better than under every other. */
const longThoughts = (length: number): CrossScores => {
  const perSequence = Array.from({ length: 64 }, (_, i) =>
    Array.from({ length: 64 }, (_, j) => (i === j ? -100 : -120)),
  );
  return {
    perSequence,
    perToken: perSequence.map(row => row.map(sum => sum / length)),
    matchedColumn: Array.from({ length: 64 }, (_, i) => i),
    prompts: Array.from({ length: 64 }, (_, i) => [i]),
  };
};

t.test(
  'information per token shrinks with the length of thoughts, the share of a sequence does not',
  async t => {
    for (const [length, perToken] of [
      [100, 0.196547],
      [10, 1.9048],
    ]) {
      const { metrics } = collapseMetrics(longThoughts(length), undefined, 'x');
      t.ok(Math.abs(metrics['x/mi_estimate'] - perToken) < 1e-4);
      t.ok(Math.abs(metrics['x/mi_seq_estimate'] - 4.158883) < 1e-6);
      t.ok(Math.abs(metrics['x/mi_seq_share'] - 1) < 1e-6);
      t.equal(metrics['x/retrieval_accuracy'], 1);
    }
  },
);

t.test('without any information all numbers are finite', async t => {
  const rows = [
    [-2, -2],
    [-2, -2],
  ];
  const { metrics } = collapseMetrics(
    { perToken: rows, perSequence: rows, matchedColumn: [0, 1], prompts: [[1], [2]] },
    undefined,
    'x',
  );
  t.ok(Object.values(metrics).every(Number.isFinite));
  t.equal(metrics['x/mi_estimate'], 0);
  t.equal(metrics['x/mi_zscore'], 0);
  t.equal(metrics['x/retrieval_accuracy'], 0.5);
  t.equal(metrics['x/retrieval_above_chance'], 0);
});

t.test('properties of the estimate', async t => {
  const random = Random.fromSeed(4);
  for (let trial = 0; trial < 20; trial++) {
    const [rows, columns] = [2 + random.integer(6), 2 + random.integer(5)];
    const lengths = Array.from({ length: rows }, () => 1 + random.integer(9));
    const sums = lengths.map(length =>
      Array.from({ length: columns }, () => -length * (0.1 + 2 * random.float())),
    );
    const matched = lengths.map(() => random.integer(columns));
    const prompts = Array.from({ length: columns }, (_, j) => [j]);
    const of = (perSequence: number[][], matchedColumn = matched, own = prompts, sizes = lengths) =>
      collapseMetrics(
        {
          perSequence,
          perToken: perSequence.map((row, i) => row.map(sum => sum / sizes[i])),
          matchedColumn,
          prompts: own,
        },
        undefined,
        'x',
      ).metrics;
    const base = of(sums);
    const same = (found: Record<string, number>, names: readonly string[], what: string) => {
      for (const name of names) {
        t.ok(Math.abs(found[`x/${name}`] - base[`x/${name}`]) < 1e-9, `${what}: ${name}`);
      }
    };
    const all = Object.keys(base).map(name => name.slice(2));
    t.ok(base['x/mi_estimate'] <= Math.log(columns) && base['x/mi_seq_estimate'] <= Math.log(columns));
    t.ok(base['x/mi_club_estimate'] >= base['x/mi_estimate']);
    t.ok(base['x/mi_club_seq_estimate'] >= base['x/mi_seq_estimate']);
    const rowOrder = random.shuffle(lengths.map((_, i) => i));
    const pick = <T>(list: readonly T[], order: readonly number[]) => order.map(i => list[i]);
    same(
      of(pick(sums, rowOrder), pick(matched, rowOrder), prompts, pick(lengths, rowOrder)),
      all,
      'rows permuted',
    );
    const order = random.shuffle(prompts.map(([j]) => j));
    const moved = of(
      sums.map(row => pick(row, order)),
      matched.map(column => order.indexOf(column)),
      pick(prompts, order),
    );
    same(moved, all, 'columns permuted');
    same(
      of([...sums, ...sums], [...matched, ...matched], prompts, [...lengths, ...lengths]),
      all,
      'rows doubled',
    );
    same(
      of(sums.map((row, i) => row.map(sum => sum + i))),
      ['mi_seq_estimate', 'mi_seq_share', 'mi_club_seq_estimate', 'mi_estimate', 'retrieval_accuracy'],
      'a constant added to each row',
    );
  }
});
