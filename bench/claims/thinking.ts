import { mean } from '../../trainer/algorithms/statistics.ts';
import {
  type Claim,
  type ClaimRun,
  CRITIC_FREE,
  EVERY_SEED_ONE_TEST,
  FILTER,
  FROM_WARM,
  NO_FILTER,
  within,
} from './claim.ts';
import type { ClaimOutcome, ReasoningPoint } from './outcomes.ts';

const CONFIG = 'configs/sokoban-nano.yaml';
const THINKS = [
  'policy.layers=3',
  'policy.context=256',
  'policy.value_head=false',
  'rollout.think=true',
  'rollout.response_length=16',
  'algorithm.advantage=grpo',
  'loss.entropy_coefficient=0.001',
];

const LOW = 'low entropy bonus';
const HIGH = 'high entropy bonus';
const FILTERED = ', filter';

function variant(name: string, filter: readonly string[], entropy: string): ClaimRun {
  return {
    variant: name,
    config: CONFIG,
    overrides: [
      'recipe=grpo',
      ...THINKS,
      ...FROM_WARM,
      ...CRITIC_FREE,
      ...filter,
      'algorithm.entropy_on=all',
      `loss.entropy_coefficient=${entropy}`,
      'validation.sets={}',
      'diagnostics.collapse.every=5',
      EVERY_SEED_ONE_TEST,
      ...within(200, 12),
    ],
  };
}

export const THINKING: Claim = {
  number: 3,
  name: 'thinking',
  title: 'Thinking, and its collapse',
  text: [
    'Small policies think before they act, in Sokoban 6 × 6 with one box. A warm start teaches thoughts: the next moves of the solver’s plan. Then GRPO with 32 groups of 8 an iteration, with and without the rollout filter (top-p 0.9 of the spread), with an entropy bonus of 0.001 and of 0.05 on all tokens.',
    'MI share is the information that a thought holds about its prompt, as a share of the most it could hold (`collapse_first_turn_sample/mi_seq_share`); entropy is that of thoughts under their own prompt in nats per token (`conditional_entropy_est`); spread is the mean standard deviation of returns within a group (`rollout/in_group_std`).',
    'RAGEN V2’s paper expects that without the filter, and more so with a high entropy bonus, the MI share falls while the entropy stays (template collapse).',
  ],
  runs: [
    {
      variant: 'warm',
      config: CONFIG,
      overrides: [
        'recipe=grpo',
        ...THINKS,
        'warm_start.episodes=3000',
        'training.validate_first=false',
        'validation.sets={}',
      ],
      warmStart: true,
      thoughts: true,
    },
    variant(LOW, NO_FILTER, '0.001'),
    variant(LOW + FILTERED, FILTER, '0.001'),
    variant(HIGH, NO_FILTER, '0.05'),
    variant(HIGH + FILTERED, FILTER, '0.05'),
  ],
  pairs: [
    [LOW, LOW + FILTERED],
    [HIGH, HIGH + FILTERED],
    [LOW, HIGH],
  ],
  references: [],
};

/** Collapse measurements of the runs as a section of the claim's page; empty without any. */
export function reasoningSection(outcomes: readonly ClaimOutcome[]): string[] {
  const measured = outcomes.flatMap(outcome => {
    const { reasoning, points } = outcome;
    const success = points.at(-1)?.success;
    return reasoning && reasoning.length > 0 && success !== undefined
      ? [{ outcome, success, first: reasoning[0], last: lateMeans(reasoning) }]
      : [];
  });
  if (measured.length === 0) return [];
  return ['## Thoughts during training', '', ...correlations(measured), ...verdict(measured)];
}

type Measured = {
  readonly outcome: ClaimOutcome;
  readonly success: number;
  readonly first: ReasoningPoint;
  readonly last: Omit<ReasoningPoint, 'step'>;
};

/** Means over the last third of the measurements. */
function lateMeans(points: readonly ReasoningPoint[]): Omit<ReasoningPoint, 'step'> {
  const late = points.slice(-Math.max(1, Math.floor(points.length / 3)));
  const of = (name: 'miShare' | 'entropy' | 'spread') => mean(late.map(point => point[name]));
  return { miShare: of('miShare'), entropy: of('entropy'), spread: of('spread') };
}

function correlations(measured: readonly Measured[]): string[] {
  if (measured.length < 3) return [];
  const success = measured.map(one => one.success);
  const row = (name: string, key: 'miShare' | 'entropy' | 'spread') => {
    const rho = spearman(
      measured.map(({ last }) => last[key]),
      success,
    );
    return `| ${name} | ${Number.isNaN(rho) ? 'none: all alike' : rho.toFixed(2)} |`;
  };
  return [
    `Spearman’s rank correlation with the validation success at the end, over ${measured.length} runs:`,
    '',
    '| measured late in training | ρ |',
    '|---|---|',
    row('MI share', 'miShare'),
    row('entropy', 'entropy'),
    row('in-group spread', 'spread'),
    '',
  ];
}

/** The paper's expectation for each variant, and the finding. */
function verdict(measured: readonly Measured[]): string[] {
  const change = (name: string, key: 'miShare' | 'entropy') => {
    const own = measured.filter(({ outcome }) => outcome.variant === name);
    return own.length === 0 ? undefined : mean(own.map(({ first, last }) => last[key] - first[key]));
  };
  const line = (name: string, expected: string) => {
    const [mi, entropy] = [change(name, 'miShare'), change(name, 'entropy')];
    if (mi === undefined || entropy === undefined) return [];
    const signed = (x: number) => `${x < 0 ? '−' : '+'}${Math.abs(x).toFixed(2)}`;
    return [`| ${name} | ${expected} | ${signed(mi)} | ${signed(entropy)} |`];
  };
  return [
    'Expected after the paper, and found, as the mean change from the first iteration to the last third:',
    '',
    '| variant | MI share should | MI share | entropy |',
    '|---|---|---|---|',
    ...line(LOW, 'fall somewhat'),
    ...line(LOW + FILTERED, 'stay'),
    ...line(HIGH, 'fall, while entropy stays or rises'),
    ...line(HIGH + FILTERED, 'fall less than without the filter'),
    '',
  ];
}

/** Ranks from 1; equal values share the mean of theirs. */
export function ranks(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const out = new Array<number>(values.length);
  for (let begin = 0; begin < order.length; ) {
    let end = begin;
    while (end + 1 < order.length && values[order[end + 1]] === values[order[begin]]) end++;
    for (let i = begin; i <= end; i++) out[order[i]] = (begin + end) / 2 + 1;
    begin = end + 1;
  }
  return out;
}

/**
 * Spearman's rank correlation, −1 to 1; NaN where one of the lists is constant.
 * @throws RangeError unless both have as many values, at least two
 */
export function spearman(a: readonly number[], b: readonly number[]): number {
  if (a.length !== b.length || a.length < 2)
    throw new RangeError(
      `a rank correlation takes two lists of one length from 2, got ${a.length} and ${b.length}`,
    );
  const [x, y] = [ranks(a), ranks(b)];
  const center = (a.length + 1) / 2;
  let [product, xx, yy] = [0, 0, 0];
  for (let i = 0; i < x.length; i++) {
    product += (x[i] - center) * (y[i] - center);
    xx += (x[i] - center) ** 2;
    yy += (y[i] - center) ** 2;
  }
  return xx === 0 || yy === 0 ? Number.NaN : product / Math.sqrt(xx * yy);
}
