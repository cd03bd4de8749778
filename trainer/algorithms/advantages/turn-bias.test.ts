import { readFileSync } from 'node:fs';
import t from 'tap';
import { countLossTokens, tokenFactor } from '../losses/aggregation.ts';
import { AGGREGATIONS, type Aggregation } from '../losses/settings.ts';
import type { AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { ADVANTAGES, estimateAdvantages } from './registry.ts';

/**
 * A problem of two turns in which the policy decides how many it plays, small enough that the expected gradient of every estimator is
 * a sum over all batches: turn 1 stops or continues, turn 2 picks x or y.
 */
const { turn_bias: golden } = JSON.parse(
  readFileSync(new URL('../../../test/golden/algorithms_2026.json', import.meta.url), 'utf8'),
) as {
  turn_bias: {
    problem: {
      p: number;
      q: number;
      episodes: { probability: number; rewards: number[]; score_of_each_turn: [number, number][] }[];
      values: { start: number; turn_2: number };
    };
    exact_gradient: Gradient;
    expected_gradient: Record<string, Record<string, Record<string, Gradient>>>;
  };
};
type Gradient = readonly [go: number, x: number];

const { episodes, values, p, q } = golden.problem;
const exact = golden.exact_gradient;
/** Estimators with baselines that depend on the order of the episodes. */
const ORDERED = ['rae'];
/** It learns from a teacher and reads no rewards. */
const WITHOUT_REWARDS = ['iw_opd'];

/** Probabilities of the token that each turn took, and Σ π² of its two choices. */
function probabilities(episode: number): readonly { taken: number; squares: number }[] {
  const first = { taken: episode === 0 ? 1 - p : p, squares: p * p + (1 - p) ** 2 };
  const second = { taken: episode === 1 ? q : 1 - q, squares: q * q + (1 - q) ** 2 };
  return episode === 0 ? [first] : [first, second];
}

function sequenceOf(episode: number, root: number): AdvantageSequence {
  const { rewards } = episodes[episode];
  const turns = probabilities(episode);
  return {
    lossMask: rewards.map(() => 1),
    rewards,
    values: [values.start, values.turn_2].slice(0, rewards.length),
    turnEnds: rewards.map((_, k) => k),
    states: ['start', 'after go'].slice(0, rewards.length),
    finalState: 'end',
    // Picking x is the success; stopping has a part of the reward.
    success: episode === 1,
    logProbs: turns.map(({ taken }) => Math.log(taken)),
    squaredProbabilities: turns.map(({ squares }) => squares),
    components: { task: rewards.reduce((a, b) => a + b, 0) },
    // Values are linear in what continuations earn, so one that earns the mean is as good as all.
    vine: {
      rewards,
      continuations: [[values.start], [values.turn_2]].slice(0, rewards.length),
      trained: rewards.map((_, k) => k),
    },
    groupId: 0,
    // A tree without a branch.
    leaf: `${root}`,
    turnNodes: rewards.map(() => `${root}`),
  };
}

/** Every batch of n episodes with its probability; as multisets, unless their order matters. */
function* batches(n: number, ordered: boolean): Generator<{ members: number[]; probability: number }> {
  if (ordered) {
    for (let code = 0; code < 3 ** n; code++) {
      const members = Array.from({ length: n }, (_, i) => Math.floor(code / 3 ** i) % 3);
      yield { members, probability: members.reduce((all, one) => all * episodes[one].probability, 1) };
    }
    return;
  }
  const logFactorial = [0];
  for (let i = 1; i <= n; i++) logFactorial.push(logFactorial[i - 1] + Math.log(i));
  for (let a = 0; a <= n; a++) {
    for (let b = 0; a + b <= n; b++) {
      const counts = [a, b, n - a - b];
      const log = counts.reduce(
        (sum, count, i) => sum - logFactorial[count] + count * Math.log(episodes[i].probability),
        logFactorial[n],
      );
      const members = counts.flatMap((count, episode) => new Array<number>(count).fill(episode));
      yield { members, probability: Math.exp(log) };
    }
  }
}

/** The expected gradient of an estimator, an exact sum over all batches of n episodes of one group. */
function expectedGradient(
  name: string,
  settings: Partial<AdvantageSettings>,
  n: number,
  aggregation: Aggregation = 'seq_mean_token_sum',
): Gradient {
  const total = [0, 0];
  for (const { members, probability } of batches(n, ORDERED.includes(name))) {
    const sequences = members.map(sequenceOf);
    const { advantages } = estimateAdvantages(name, sequences, { components: { task: 1 }, ...settings });
    const counts = countLossTokens(sequences);
    members.forEach((episode, i) => {
      const { length } = sequences[i].lossMask;
      const factor = tokenFactor(aggregation, counts.tokens, counts.sequences, length, 1);
      episodes[episode].score_of_each_turn.forEach((score, k) => {
        total[0] += probability * factor * advantages[i][k] * score[0];
        total[1] += probability * factor * advantages[i][k] * score[1];
      });
    });
  }
  return [total[0], total[1]];
}

const near = (a: Gradient, b: Gradient, tolerance = 1e-9) =>
  Math.abs(a[0] - b[0]) < tolerance && Math.abs(a[1] - b[1]) < tolerance;

/** Sine of the angle between a gradient and the exact one: 0 where only the length differs. */
function error(gradient: Gradient): number {
  const cross = gradient[0] * exact[1] - gradient[1] * exact[0];
  return Math.abs(cross) / (Math.hypot(...gradient) * Math.hypot(...exact));
}

/** Rows of the golden file that are ragen's own estimators. */
const GOLDEN: readonly (readonly [key: string, name: string, settings: Partial<AdvantageSettings>])[] = [
  ['rebn', 'rebn', {}],
  ['gigpo', 'gigpo', {}],
  ['gigpo, std_normalize false', 'gigpo', { stdNormalize: false }],
  ['bi_level_gae', 'bi_level_gae', {}],
  ['bi_level_gae, whiten false', 'bi_level_gae', { whiten: false }],
  ['bi_level_gae, high_level_gamma 1', 'bi_level_gae', { highLevelGamma: 1 }],
  ['bi_level_gae, high_level_gamma 1, whiten false', 'bi_level_gae', { highLevelGamma: 1, whiten: false }],
  ['return_to_go_turn_loo', 'turn_loo', {}],
  ['gae', 'gae', {}],
  ['gae, whiten false', 'gae', { whiten: false }],
  ['grpo', 'grpo', {}],
  ['dr_grpo', 'dr_grpo', {}],
  ['rloo', 'rloo', {}],
  ['reinforce_pp', 'reinforce_pp', {}],
  ['reinforce_pp, whiten false', 'reinforce_pp', { whiten: false }],
  ['verl tir_optimal_token_baseline, handle_zero_tail', 'otb', {}],
  ['verl tir_optimal_token_baseline', 'otb', { handleZeroTail: false }],
];
const GOLDEN_AGGREGATIONS = [
  ['constant', 'seq_mean_token_sum'],
  ['token_mean', 'token_mean'],
  ['seq_mean_token_mean', 'seq_mean_token_mean'],
] as const;

for (const [key, name, settings] of GOLDEN) {
  t.test(`golden expected gradient: ${key}`, async t => {
    for (const n of [2, 4, 8]) {
      for (const [wanted, aggregation] of GOLDEN_AGGREGATIONS) {
        const gradient = golden.expected_gradient[key][n][wanted];
        if (gradient === undefined) continue;
        const found = expectedGradient(name, settings, n, aggregation);
        // verl computes in float32.
        const tolerance =
          key.startsWith('verl') || key.includes('rebn') || key.includes('gigpo') ? 2e-6 : 1e-8;
        t.ok(near(found, gradient, tolerance), `${n} episodes, ${aggregation}: ${found}, not ${gradient}`);
      }
    }
  });
}

t.test('turn_loo is exact for groups of every size, one included', async t => {
  for (const n of [1, 2, 3, 4, 8, 16])
    t.ok(near(expectedGradient('turn_loo', {}, n), exact), `${n} episodes`);
});

/** A row of the table in docs/reference/algorithms.md: name, settings, two gradients, verdict. */
interface Row {
  readonly name: string;
  readonly settings: Partial<AdvantageSettings>;
  readonly gradients: readonly [four: Gradient, eight: Gradient];
  readonly verdict: string;
}

const KEYS: Readonly<Record<string, keyof AdvantageSettings>> = {
  whiten: 'whiten',
  std_normalize: 'stdNormalize',
  high_level_gamma: 'highLevelGamma',
};

function tableRows(): Row[] {
  const page = readFileSync(new URL('../../../docs/reference/algorithms.md', import.meta.url), 'utf8');
  const [section] = page.slice(page.indexOf('\n## Credit for turns') + 1).split('\n## ');
  const rows = [...section.matchAll(/^\| `([a-z0-9_]+)`([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$/gm)];
  return rows.map(([, name, settings, four, eight, verdict]) => ({
    name,
    settings: Object.fromEntries(
      [...settings.matchAll(/`([a-z_]+): ([a-z0-9.]+)`/g)].map(([, key, value]) => [
        KEYS[key],
        JSON.parse(value),
      ]),
    ),
    gradients: [gradientOf(four), gradientOf(eight)],
    verdict: verdict.trim(),
  }));
}

function gradientOf(cell: string): Gradient {
  const [go, x] = cell
    .trim()
    .split(/\s+/)
    .map(text => Number(text.replace('−', '-')));
  return [go, x];
}

t.test('the table of the algorithms page says of every estimator what the enumeration says', async t => {
  const rows = tableRows();
  const named = new Set(rows.map(({ name }) => name));
  for (const name of ADVANTAGES) t.ok(named.has(name) || WITHOUT_REWARDS.includes(name), `${name} has a row`);
  for (const { name, settings, gradients, verdict } of rows) {
    const what = `${name} ${JSON.stringify(settings)}`;
    const found = [4, 8].map(n => expectedGradient(name, settings, n));
    found.forEach((gradient, i) => {
      t.ok(near(gradient, gradients[i], 5.1e-5), `${what}: ${gradient.map(x => x.toFixed(4))}`);
    });
    t.equal(verdict, verdictOf(name, settings, found), what);
  }
});

/** Sine of the angle that extrapolation leaves; the estimators that stay biased are off by 0.02 and more. */
const LIMIT_TOLERANCE = 0.01;

/** `exact`; `O(1/n)` where the direction comes right as groups grow; else `biased`. */
function verdictOf(
  name: string,
  settings: Partial<AdvantageSettings>,
  [four, eight]: readonly Gradient[],
): string {
  if (near(four, exact) && near(eight, exact)) return 'exact';
  if (error(four) < 1e-9 && error(eight) < 1e-9) return 'O(1/n)';
  // Richardson's extrapolation to groups without end, from three sizes that double.
  const [small, middle, large] = [12, 24, 48].map(n => expectedGradient(name, settings, n));
  const limit = (i: 0 | 1) => (8 * large[i] - 6 * middle[i] + small[i]) / 3;
  return error([limit(0), limit(1)]) < LIMIT_TOLERANCE ? 'O(1/n)' : 'biased';
}

t.test('sums with constant weights keep an exact estimator exact, other aggregations do not', async t => {
  for (const name of ['rloo', 'turn_loo']) {
    for (const aggregation of AGGREGATIONS) {
      const isConstant = aggregation === 'dr_grpo' || aggregation === 'seq_mean_token_sum';
      t.equal(near(expectedGradient(name, {}, 4, aggregation), exact), isConstant, `${name}, ${aggregation}`);
    }
  }
});
