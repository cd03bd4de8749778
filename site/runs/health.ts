import { withUnit } from '../components/text.ts';
import { verdictOf } from '../compute/outcome.ts';
import type { RunRow } from '../server/reader/runs-table.ts';
import { REGIMES } from './charts/plane.ts';
import type { Points } from './data/run-store.ts';
import { ago, percent, short } from './format.ts';

/** A finding about a run, with advice. */
export interface HealthCard {
  readonly level: 'good' | 'warn' | 'bad';
  readonly title: string;
  readonly text: string;
  /** Advice; absent where nothing needs to be done. */
  readonly advice?: string;
}

/** Metrics behind the cards, besides `train/<tag>/format_penalty`. */
export const HEALTH_METRICS = [
  'frac_reward_zero_std',
  'actor/entropy',
  'actor/grad_norm',
  'actor/ppo_kl',
  'actor/step_skipped',
  'critic/vf_explained_var',
  'response_length/clip_ratio',
  'collapse/regime',
  'rollouter/dropped_groups',
] as const;

const RECENT = 5;
/** Validations after which a run should have improved. */
const EARLY = 3;

type Series = (name: string) => Points;

/**
 * Cards about a run's health, most severe first; a single card where all is well.
 * @param resume command
 */
export function healthCards(
  row: RunRow,
  series: Series,
  groupSize: number,
  now: number,
  resume: string,
): HealthCard[] {
  const formatPenalties = row.run.tags.map(({ tag }) => `train/${tag}/format_penalty`);
  const measured = RULES.flatMap(rule => rule(series) || []);
  const cards = [
    ...stateCards(row, now, resume),
    ...progressCards(row),
    ...spreadCards(series, groupSize),
    ...measured,
    ...formatCards(series, formatPenalties),
  ];
  const order = { bad: 0, warn: 1, good: 2 };
  const sorted = cards.sort((a, b) => order[a.level] - order[b.level]);
  if (sorted.some(({ level }) => level !== 'good')) return sorted;
  const steps = series('actor/grad_norm').x.length;
  if (steps === 0) return sorted;
  const text = 'Gradients are finite, episodes differ, answers are well-formed.';
  return [card('good', 'Training is healthy', text), ...sorted];
}

const card = (level: HealthCard['level'], title: string, text: string, advice?: string): HealthCard => ({
  level,
  title,
  text,
  advice,
});

/** Finding about a run that does not train any more. */
function stateCards(
  { state, updated, last_error, step, steps }: RunRow,
  now: number,
  resume: string,
): HealthCard[] {
  const goOn = `Continue with: ${resume}`;
  const place = `step ${step} of ${steps}`;
  const silent = `Its last sign of life was ${ago(updated, now)}; its process is gone or hangs.`;
  const error = last_error?.text ?? 'It left no error.';
  const missing = 'status.json is missing, or is not written to its end.';
  const cards: { readonly [state in RunRow['state']]?: HealthCard } = {
    failed: card('bad', `The run failed at ${place}`, error, `Mend what the error names. ${goOn}`),
    stalled: card('bad', 'The run has stalled', silent, goOn),
    stopped: card('warn', `Stopped at ${place}`, 'It was asked to stop and wrote a checkpoint.', goOn),
    unknown: card(
      'warn',
      'Its state is unknown',
      missing,
      `Copy the whole folder again. Where it is the original: ${resume}`,
    ),
  };
  const found = cards[state];
  return found ? [found] : [];
}

/** Findings from the validations; none before the first. */
function progressCards({ validations, run, state }: RunRow): HealthCard[] {
  const first = validations.at(0);
  const last = validations.at(-1);
  if (!first || !last) return [];
  const [tag] = run.tags;
  const known = tag && run.tags.length === 1 ? tag : undefined;
  const compared = [
    known && known.random !== null ? `acting at random reaches ${percent(known.random)}` : '',
    known && known.optimum !== null ? `the optimum is ${percent(known.optimum)}` : '',
  ].filter(text => text !== '');
  const reference = compared.length > 0 ? ` For comparison: ${compared.join(', ')}.` : '';
  const [before, after] = [percent(first.success), percent(last.success)];
  if (first === last) {
    const only = `One validation so far, at step ${last.step}.${reference}`;
    return [card('good', `Success ${after} on the validation levels`, only)];
  }
  const change = before === after ? `Success stayed at ${after}` : `Success went from ${before} to ${after}`;
  const steps = `Validation at step ${first.step} and step ${last.step}`;
  const verdict = verdictOf(validations);
  if (verdict === 'improved') return [card('good', change, `${steps}.${reference}`)];
  if (state === 'running' && validations.length <= EARLY) {
    const early = `It is early: the first ${validations.length} validations differ by no more than chance.${reference}`;
    return [card('good', `${change} so far`, early)];
  }
  const level = state === 'running' ? 'warn' : 'bad';
  if (verdict === 'worse') {
    const advice = 'Lower optimizer.learning_rate, or raise rollout.group_size.';
    return [card(level, `${change}: it became worse`, `${steps}.${reference}`, advice)];
  }
  return [
    card(
      level,
      `${change}: no clear progress`,
      `${steps}; the difference lies within chance.${reference}`,
      'Look at the cards below and at failed episodes; easier levels or a warm start give the first successes.',
    ),
  ];
}

const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

const recent = ({ y }: Points): number => meanOf(y.slice(-RECENT).filter(value => !Number.isNaN(value)));

/** Step since which a condition has held continuously; undefined when it does not hold. */
function since({ x, y }: Points, holds: (value: number) => boolean): number | undefined {
  let start: number | undefined;
  for (let i = y.length - 1; i >= 0 && holds(y[i]); i--) start = x[i];
  return start;
}

/** Findings about one metric; nothing where it is as it should be. */
const RULES: readonly ((series: Series) => HealthCard | false)[] = [
  series => {
    const { y } = series('actor/entropy');
    const start = meanOf(y.slice(0, RECENT));
    const now = recent(series('actor/entropy'));
    return (
      y.length >= 2 * RECENT &&
      now < 0.1 * start &&
      card(
        'warn',
        'The policy hardly explores any more',
        `Its entropy fell from ${short(start)} to ${withUnit(short(now), 'nats')} per token.`,
        'Good at the end of a successful run. Earlier, raise loss.entropy_coefficient or rollout.temperature.',
      )
    );
  },
  series => {
    const { x, y } = series('actor/grad_norm');
    const bad = y.findIndex(value => !Number.isFinite(value));
    return (
      bad !== -1 &&
      card(
        'bad',
        'A gradient was not a number',
        `actor/grad_norm at step ${x[bad]}.`,
        'Lower optimizer.learning_rate; with policy.precision float16 also look at actor/loss_scale.',
      )
    );
  },
  series => {
    const { y } = series('actor/grad_norm');
    const middle = y.toSorted((a, b) => a - b)[y.length >> 1];
    const last = Math.max(...y.slice(-RECENT));
    return (
      y.length >= 2 * RECENT &&
      y.every(Number.isFinite) &&
      last > 10 * middle &&
      middle > 0 &&
      card(
        'warn',
        'Gradients spike',
        `The last steps had a norm of up to ${short(last)}; half of all stay below ${short(middle)}.`,
        'Lower optimizer.learning_rate, or clip earlier (optimizer.clip_norm).',
      )
    );
  },
  series => {
    const kl = recent(series('actor/ppo_kl'));
    const text = `A step moves the policy by ${withUnit(short(kl), 'nats')} on average.`;
    const advice = 'Lower optimizer.learning_rate or algorithm.ppo_epochs.';
    return kl > 0.1 && card('warn', 'Updates are too large', text, advice);
  },
  series => {
    const critic = series('critic/vf_explained_var');
    const from = since(critic, value => value < 0);
    return (
      critic.y.length >= 2 * RECENT &&
      from !== undefined &&
      from <= critic.x.at(-RECENT)! &&
      card(
        'warn',
        'The critic is no help',
        `Its explained variance has been below 0 since step ${from}: predicting the mean would be better.`,
        'Raise loss.value_coefficient, or take an advantage that needs no critic, e.g. recipe=grpo.',
      )
    );
  },
  series => {
    const cut = recent(series('response_length/clip_ratio'));
    const advice = 'Raise rollout.response_length, or look whether the policy repeats itself.';
    return (
      cut > 0.1 &&
      card('warn', 'Responses are cut off', `${percent(cut)} of the responses reach the limit.`, advice)
    );
  },
  series => {
    const regimes = series('collapse/regime');
    const now = regimes.y.at(-1);
    if (!now || !REGIMES[now]) return false;
    const title = `Reasoning: ${REGIMES[now]} since step ${since(regimes, value => value === now)}`;
    if (now === 2) return card('warn', title, 'Thoughts became short but still depend on the prompt.');
    return card(
      'warn',
      title,
      'What the policy thinks depends less on the prompt than it did.',
      'Filter groups without spread (algorithm.filter), lower loss.entropy_coefficient, or add a KL term.',
    );
  },
  series => {
    const skipped = recent(series('actor/step_skipped'));
    const text = `${percent(skipped)} of the optimizer steps overflowed in float16.`;
    return skipped > 0.1 && card('warn', 'Steps are skipped', text, 'Lower policy.loss_scale.initial.');
  },
];

/** Groups with equal episodes; nothing about groups of one. */
function spreadCards(series: Series, groupSize: number): HealthCard[] {
  const alike = groupSize > 1 ? recent(series('frac_reward_zero_std')) : 0;
  if (!(alike > 0.5)) return [];
  return [
    card(
      alike > 0.8 ? 'bad' : 'warn',
      'No spread within groups',
      `In ${Math.round(10 * alike)} of 10 groups all episodes end alike, so that they say nothing about which action was better.`,
      'Where they all fail, take easier levels or a warm start; where they all succeed, take harder ones. A higher rollout.temperature or a larger rollout.group_size gives more spread.',
    ),
  ];
}

function formatCards(series: Series, names: readonly string[]): HealthCard[] {
  const advice =
    'A warm start teaches the format in minutes; rollout.constrained allows well-formed answers only.';
  return names.flatMap(name => {
    const penalised = recent(series(name));
    const text = `${percent(penalised)} of the turns in ${name.split('/')[1]} have no valid action or an unknown one.`;
    return penalised > 0.2 ? [card('warn', 'Many answers are malformed', text, advice)] : [];
  });
}
