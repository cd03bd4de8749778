import { readFileSync } from 'node:fs';
import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { unchanged } from '../core/actions.ts';
import {
  type Description,
  type Environment,
  type EnvironmentSpec,
  InvalidOptions,
  type ObservationFormat,
  type ReferencePolicy,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { choiceSetting, numberSetting } from '../core/settings.ts';
import { choice, dict, LINES, number, type ObservationSpaces, orNull, text, tuple } from '../core/spaces.ts';

/** Professions, the settled one first and the daring one second. */
type NamePair = readonly [settled: string, daring: string];

/** Pairs of names by split. Their order matters: seeds draw from it. */
export const PAIRS: { readonly [split in BanditConfig['split']]: readonly NamePair[] } = JSON.parse(
  readFileSync(new URL('./pairs.json', import.meta.url), 'utf8'),
);

const MAX_NAME_LENGTH = 64;
const JOIN = 'or';
/** Steps before truncation: a name that is not an arm pulls nothing and may be followed by a valid one. */
const MAX_ATTEMPTS = 10;

const configSchema = closed({
  split: choiceSetting(
    ['train', 'test'],
    'train',
    'Which pairs of names are used: 12 for training, 8 others for tests.',
  ),
  low_reward: numberSetting(0.1, [-100, 100], 'What the low arm always pays.'),
  high_reward: numberSetting(1, [-100, 100], 'What the high arm pays when it does.'),
  high_probability: numberSetting(0.25, [0, 1], 'How often the high arm pays; otherwise it pays 0.'),
});

const name = (description: string) =>
  Type.Optional(Type.String({ pattern: '^\\S+$', maxLength: MAX_NAME_LENGTH, description }));

const optionsSchema = closed({
  low: name('Name of the low arm.'),
  high: name('Name of the high arm.'),
  first: Type.Optional(
    Type.Union([Type.Literal('low'), Type.Literal('high')], {
      description: 'The arm that is named first.',
    }),
  ),
});

export type BanditConfig = Static<typeof configSchema>;
type BanditOptions = Static<typeof optionsSchema>;
type Arm = 'low' | 'high';

export type BanditState = {
  readonly names: { readonly low: string; readonly high: string };
  readonly order: readonly [Arm, Arm];
  readonly rewards: { readonly low: number; readonly high: number; readonly high_probability: number };
  /** The arm that was pulled and what it paid. */
  readonly pulled: { readonly arm: Arm; readonly reward: number } | null;
};

const ORDERS = [
  ['low', 'high'],
  ['high', 'low'],
] as const;

const spec: EnvironmentSpec = {
  id: 'Bandit-v0',
  title: 'Two-armed bandit',
  description: [
    'Two arms carry the names of professions, one settled and one daring, in random order. The settled arm is the',
    'low one and always pays `low_reward`; the daring arm is the high one and pays `high_reward` with probability',
    '`high_probability`, else nothing. With the defaults the high arm pays more on average (0.25 against 0.1).',
    '',
    'The episode is one pull. It counts as a success when the high arm was pulled, even if it paid less.',
  ].join('\n'),
  tags: ['bandit', 'stochastic', 'one step'],
  configSchema,
  optionsSchema,
  presets: { test: { split: 'test' } },
  observationSpace: { type: 'Text', maxLength: 4 * MAX_NAME_LENGTH },
  actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_NAME_LENGTH, charset: LINES },
  observationFormats: ['text', 'structured'],
  rewardRange: [-100, 100],
  rewardThreshold: 0.24,
  knownOptimum: { success: 1, source: 'the daring name is the high arm' },
  maxEpisodeSteps: MAX_ATTEMPTS,
  ends: { high_arm: 'Pulled the high arm', low_arm: 'Pulled the low arm' },
  exampleAction: 'Stuntman',
  history: [{ version: 0, change: 'First version.' }],
};

/** Bandit-v0: RAGEN's two-armed bandit with names that hint at the risk. */
export const bandit = {
  spec,

  describe(config: BanditConfig): Description {
    const names = PAIRS[config.split].flat();
    return {
      instruction:
        'Pull one of two arms, once. One pays little but always, the other pays more but only now and then; their names hint at which is which. Pull the one that pays more on average.',
      actionFormat: 'the name of an arm',
      vocabulary: [...names, JOIN, 'paid', String(config.low_reward), String(config.high_reward), '0'],
    };
  },

  observationSpaces: (): ObservationSpaces => {
    const name = text(MAX_NAME_LENGTH);
    const pulled = dict({ arm: choice('low', 'high'), reward: number(), name });
    return {
      text: text(4 * MAX_NAME_LENGTH),
      structured: dict({ arms: tuple(name, name), pulled: orNull(pulled) }),
    };
  },

  reset(config: BanditConfig, rng: Random, options: JsonObject): BanditState {
    const pinned: BanditOptions = options;
    const [settled, daring] = rng.choice(PAIRS[config.split]);
    const drawn = rng.choice(ORDERS);
    const names = { low: pinned.low ?? settled, high: pinned.high ?? daring };
    if (fold(names.low) === fold(names.high)) {
      throw new InvalidOptions('/high', `both arms are called ${names.high}`);
    }
    return {
      names,
      order: pinned.first ? ORDERS.find(order => order[0] === pinned.first)! : drawn,
      rewards: {
        low: config.low_reward,
        high: config.high_reward,
        high_probability: config.high_probability,
      },
      pulled: null,
    };
  },

  step(state: BanditState, action: Json, rng: Random): Transition<BanditState> {
    const arm = armOf(state, action);
    if (!arm || state.pulled) {
      const { pulled } = state;
      const end = pulled && { success: pulled.arm === 'high', ended_by: `${pulled.arm}_arm` };
      return unchanged(state, arm !== undefined, end);
    }
    const { low, high, high_probability } = state.rewards;
    const reward = arm === 'low' ? low : rng.chance(high_probability) ? high : 0;
    return {
      state: { ...state, pulled: { arm, reward } },
      reward,
      terminated: true,
      info: stepInfo(arm === 'high', true, true, `${arm}_arm`),
    };
  },

  levelKey: ({ names }: BanditState) => `${names.low} ${names.high}`,

  observe(state: BanditState, format: ObservationFormat): Json {
    const [first, second] = state.order.map(arm => state.names[arm]);
    const { pulled } = state;
    if (format === 'structured')
      return { arms: [first, second], pulled: pulled && { ...pulled, name: state.names[pulled.arm] } };
    return pulled ? `${state.names[pulled.arm]} paid ${pulled.reward}` : `${first} ${JOIN} ${second}`;
  },

  validActions: (state: BanditState): readonly Json[] =>
    state.pulled ? [] : state.order.map(arm => state.names[arm]),

  references: {
    optimal: {
      title: 'The arm that pays more on average',
      plan: ({ names, rewards, pulled }: BanditState) => {
        const best = rewards.high * rewards.high_probability >= rewards.low ? names.high : names.low;
        return pulled ? [] : [best];
      },
    },
    random: {
      title: 'Either arm, equally likely',
      plan: ({ names, pulled }: BanditState, _count: number, rng: Random) =>
        pulled ? [] : [rng.choice([names.low, names.high])],
    },
  } satisfies { [name: string]: ReferencePolicy<BanditState> },
} satisfies Environment<BanditConfig, BanditState>;

function fold(word: string): string {
  return word.trim().toLowerCase();
}

/** An arm by its name, or by 1 and 2 in the order shown. */
function armOf(state: BanditState, action: Json): Arm | undefined {
  if (typeof action === 'number') return state.order[action - 1];
  if (typeof action !== 'string') return undefined;
  const wanted = fold(action);
  return state.order.find(arm => fold(state.names[arm]) === wanted);
}
