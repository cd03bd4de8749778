import { withUnit } from '../components/with-unit.ts';
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
  const measured = RULES.flatMap(rule => rule(series) ?? []);
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
  return [
    {
      level: 'good',
      title: 'Training is healthy',
      text: 'Gradients are finite, episodes differ, answers are well-formed.',
    },
    ...sorted,
  ];
}

function stateCards(
  { state, updated, last_error, step, steps }: RunRow,
  now: number,
  resume: string,
): HealthCard[] {
  const goOn = `Continue with: ${resume}`;
  switch (state) {
    case 'failed':
      return [
        {
          level: 'bad',
          title: `The run failed at step ${step} of ${steps}`,
          text: last_error?.text ?? 'It left no error.',
          advice: `Mend what the error names. ${goOn}`,
        },
      ];
    case 'stalled':
      return [
        {
          level: 'bad',
          title: 'The run has stalled',
          text: `Its last sign of life was ${ago(updated, now)}; its process is gone or hangs.`,
          advice: goOn,
        },
      ];
    case 'stopped':
      return [
        {
          level: 'warn',
          title: `Stopped at step ${step} of ${steps}`,
          text: 'It was asked to stop and wrote a checkpoint.',
          advice: goOn,
        },
      ];
    case 'unknown':
      return [
        {
          level: 'warn',
          title: 'Its state is unknown',
          text: 'status.json is missing, or is not written to its end.',
          advice: `Copy the whole folder again. Where it is the original: ${resume}`,
        },
      ];
    default:
      return [];
  }
}

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
  if (first === last) {
    return [
      {
        level: 'good',
        title: `Success ${percent(last.success)} on the validation levels`,
        text: `One validation so far, at step ${last.step}.${reference}`,
      },
    ];
  }
  const [before, after] = [percent(first.success), percent(last.success)];
  const change = before === after ? `Success stayed at ${after}` : `Success went from ${before} to ${after}`;
  const verdict = verdictOf(validations);
  if (verdict === 'improved')
    return [
      {
        level: 'good',
        title: change,
        text: `Validation at step ${first.step} and step ${last.step}.${reference}`,
      },
    ];
  if (state === 'running' && validations.length <= EARLY) {
    return [
      {
        level: 'good',
        title: `${change} so far`,
        text: `It is early: the first ${validations.length} validations differ by no more than chance.${reference}`,
      },
    ];
  }
  const worse = verdict === 'worse';
  return [
    {
      level: state === 'running' ? 'warn' : 'bad',
      title: worse ? `${change}: it became worse` : `${change}: no clear progress`,
      text: `Validation at step ${first.step} and step ${last.step}${worse ? '' : '; the difference lies within chance'}.${reference}`,
      advice: worse
        ? 'Lower optimizer.learning_rate, or raise rollout.group_size.'
        : 'Look at the cards below and at failed episodes; easier levels or a warm start give the first successes.',
    },
  ];
}

const recent = ({ y }: Points): number => {
  const last = y.slice(-RECENT).filter(value => !Number.isNaN(value));
  return last.reduce((sum, value) => sum + value, 0) / last.length;
};

/** Step since which a condition has held continuously; undefined when it does not hold. */
function since({ x, y }: Points, holds: (value: number) => boolean): number | undefined {
  let start: number | undefined;
  for (let i = y.length - 1; i >= 0 && holds(y[i]); i--) start = x[i];
  return start;
}

type Rule = (series: Series) => HealthCard | undefined;

const RULES: readonly Rule[] = [
  series => {
    const { y } = series('actor/entropy');
    const before = y.slice(0, RECENT);
    const start = before.reduce((sum, value) => sum + value, 0) / before.length;
    const now = recent(series('actor/entropy'));
    if (y.length < 2 * RECENT || !(now < 0.1 * start)) return undefined;
    return {
      level: 'warn',
      title: 'The policy hardly explores any more',
      text: `Its entropy fell from ${short(start)} to ${withUnit(short(now), 'nats')} per token.`,
      advice:
        'Good at the end of a successful run. Earlier, raise loss.entropy_coefficient or rollout.temperature.',
    };
  },
  series => {
    const { x, y } = series('actor/grad_norm');
    const bad = y.findIndex(value => !Number.isFinite(value));
    if (bad !== -1) {
      return {
        level: 'bad',
        title: 'A gradient was not a number',
        text: `actor/grad_norm at step ${x[bad]}.`,
        advice: 'Lower optimizer.learning_rate; with policy.precision float16 also look at actor/loss_scale.',
      };
    }
    const middle = y.toSorted((a, b) => a - b)[y.length >> 1];
    const last = Math.max(...y.slice(-RECENT));
    if (y.length < 2 * RECENT || !(last > 10 * middle) || !(middle > 0)) return undefined;
    return {
      level: 'warn',
      title: 'Gradients spike',
      text: `The last steps had a norm of up to ${short(last)}; half of all stay below ${short(middle)}.`,
      advice: 'Lower optimizer.learning_rate, or clip earlier (optimizer.clip_norm).',
    };
  },
  series => {
    const kl = recent(series('actor/ppo_kl'));
    if (!(kl > 0.1)) return undefined;
    return {
      level: 'warn',
      title: 'Updates are too large',
      text: `A step moves the policy by ${withUnit(short(kl), 'nats')} on average.`,
      advice: 'Lower optimizer.learning_rate or algorithm.ppo_epochs.',
    };
  },
  series => {
    const critic = series('critic/vf_explained_var');
    const from = since(critic, value => value < 0);
    if (critic.y.length < 2 * RECENT || from === undefined || from > critic.x.at(-RECENT)!) return undefined;
    return {
      level: 'warn',
      title: 'The critic is no help',
      text: `Its explained variance has been below 0 since step ${from}: predicting the mean would be better.`,
      advice: 'Raise loss.value_coefficient, or take an advantage that needs no critic, e.g. recipe=grpo.',
    };
  },
  series => {
    const cut = recent(series('response_length/clip_ratio'));
    if (!(cut > 0.1)) return undefined;
    return {
      level: 'warn',
      title: 'Responses are cut off',
      text: `${percent(cut)} of the responses reach the limit.`,
      advice: 'Raise rollout.response_length, or look whether the policy repeats itself.',
    };
  },
  series => {
    const regimes = series('collapse/regime');
    const now = regimes.y.at(-1);
    if (now === undefined || now === 0 || !REGIMES[now]) return undefined;
    const from = since(regimes, value => value === now);
    return {
      level: 'warn',
      title: `Reasoning: ${REGIMES[now]} since step ${from}`,
      text:
        now === 2
          ? 'Thoughts became short but still depend on the prompt.'
          : 'What the policy thinks depends less on the prompt than it did.',
      advice:
        now === 2
          ? undefined
          : 'Filter groups without spread (algorithm.filter), lower loss.entropy_coefficient, or add a KL term.',
    };
  },
  series => {
    const skipped = recent(series('actor/step_skipped'));
    if (!(skipped > 0.1)) return undefined;
    return {
      level: 'warn',
      title: 'Steps are skipped',
      text: `${percent(skipped)} of the optimizer steps overflowed in float16.`,
      advice: 'Lower policy.loss_scale.initial.',
    };
  },
];

/** Cards about groups with equal episodes; none for groups of one. */
function spreadCards(series: Series, groupSize: number): HealthCard[] {
  const alike = groupSize > 1 ? recent(series('frac_reward_zero_std')) : 0;
  if (!(alike > 0.5)) return [];
  return [
    {
      level: alike > 0.8 ? 'bad' : 'warn',
      title: 'No spread within groups',
      text: `In ${Math.round(10 * alike)} of 10 groups all episodes end alike, so that they say nothing about which action was better.`,
      advice:
        'Where they all fail, take easier levels or a warm start; where they all succeed, take harder ones. A higher rollout.temperature or a larger rollout.group_size gives more spread.',
    },
  ];
}

function formatCards(series: Series, names: readonly string[]): HealthCard[] {
  return names.flatMap(name => {
    const penalised = recent(series(name));
    if (!(penalised > 0.2)) return [];
    const tag = name.split('/')[1];
    return [
      {
        level: 'warn' as const,
        title: 'Many answers are malformed',
        text: `${percent(penalised)} of the turns in ${tag} have no valid action or an unknown one.`,
        advice:
          'A warm start teaches the format in minutes; rollout.constrained allows well-formed answers only.',
      },
    ];
  });
}
