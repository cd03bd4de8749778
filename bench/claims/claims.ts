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
import { GENERALIST } from './generalist.ts';
import { PUBLISHED_MODEL, PUBLISHED_MODEL_COUNTDOWN } from './published-model.ts';
import { THINKING } from './thinking.ts';

const LAKE_PLAYERS = [
  { name: 'FrozenLake, random player', success: '25 %', source: 'ten moves, `evaluate --policy random`' },
  { name: 'FrozenLake, best player', success: '94 %', source: 'value iteration under the cap of ten moves' },
];

const ROOM_PLAYERS = [
  { name: 'Sokoban, random player', success: '17 %', source: 'ten moves, `evaluate --policy random`' },
  {
    name: 'Sokoban, best player',
    success: '98 %',
    source: 'search, under the cap of ten moves: `evaluate --policy optimal`',
  },
];

const HEADLINE: Claim = {
  number: 1,
  name: 'headline',
  title: 'Success within a fixed time',
  text: [
    'Small policies from random weights on two cores. Success is sampled, on layouts that never occur in training, not even mirrored. Time includes warm start and validations.',
  ],
  runs: [
    {
      variant: 'FrozenLake, PPO',
      config: 'configs/frozenlake-ppo.yaml',
      overrides: [EVERY_SEED_ONE_TEST, 'warm_start.episodes=4000', ...within(680, 5)],
    },
    {
      variant: 'Sokoban, warm start and Dr. GRPO',
      config: 'configs/sokoban-many-demonstrations.yaml',
      overrides: [EVERY_SEED_ONE_TEST, 'warm_start.episodes=20000', ...within(800, 30)],
    },
    {
      variant: 'Sokoban, PPO alone',
      config: 'configs/sokoban-constrained.yaml',
      overrides: [EVERY_SEED_ONE_TEST, ...within(300, 18)],
    },
  ],
  pairs: [],
  references: [
    ...LAKE_PLAYERS,
    {
      name: 'FrozenLake, PyTorch, PPO',
      success: '67 %',
      source: 'the same size, one seed, 1.9 minutes, prototype in fp32',
    },
    {
      name: 'Sokoban, PyTorch, warm start and PPO',
      success: '89 % (85 to 86 on rooms never seen)',
      source: 'the same size, one seed, 12.1 minutes, prototype in fp32',
    },
    {
      name: 'Sokoban, PyTorch, PPO alone',
      success: '79 %',
      source: 'three layers, one seed, 12.2 minutes, prototype in fp32',
    },
    ...ROOM_PLAYERS,
  ],
};

const WARM: ClaimRun = {
  variant: 'warm',
  config: 'configs/sokoban-nano.yaml',
  overrides: ['warm_start.episodes=3000'],
  warmStart: true,
};

const fromWarm = (variant: string, overrides: readonly string[], filter: readonly string[]): ClaimRun => ({
  variant,
  config: 'configs/sokoban-nano.yaml',
  overrides: [
    ...overrides,
    ...FROM_WARM,
    ...filter,
    'validation.sets={}',
    'training.validate_every=30',
    ...within(240, 12),
  ],
});

const withAndWithout = (
  variant: string,
  overrides: readonly string[],
  filter: readonly string[],
  none = NO_FILTER,
) => [fromWarm(variant, overrides, none), fromWarm(`${variant}, filter`, overrides, filter)];

const FILTERS: Claim = {
  number: 4,
  name: 'filter-gains',
  title: 'What the rollout filter gains',
  text: [
    'Sokoban 6 × 6 with one box from the same warm starts, 32 groups of 8 an iteration, each algorithm with and without its filter. A filter saves updates, so its iterations are shorter.',
    'StarPO-S keeps a quarter of the groups, and is otherwise PPO. DAPO drops groups without spread and collects again. The others keep groups up to 90 % of the spread.',
  ],
  runs: [
    WARM,
    ...withAndWithout('PPO', ['recipe=starpo'], FILTER),
    ...withAndWithout('GRPO', ['recipe=grpo', ...CRITIC_FREE], FILTER),
    ...withAndWithout(
      'DAPO',
      ['recipe=dapo', ...CRITIC_FREE],
      [],
      [...NO_FILTER, 'algorithm.filter.fill=delete'],
    ),
    fromWarm('StarPO-S, filter', ['recipe=starpo_s'], []),
  ],
  pairs: [
    ...['PPO', 'GRPO', 'DAPO'].map(name => [name, `${name}, filter`] as const),
    ['PPO', 'StarPO-S, filter'],
  ],
  references: [],
};

const TWO_BOXES = [
  'train_tags=[SokobanTwoBoxesTrain]',
  'validation.tags=[SokobanTwoBoxes]',
  'validation.sets={}',
];

const window = (mode: string, turns: number) => [
  `rollout.context_mode=${mode}`,
  `rollout.max_context_window=${turns}`,
];
const LAST_TWO = window('limited_multi_turn', 2);
const CURRENT = window('single_turn', 1);
const warmInWindow = (variant: string, own: readonly string[]): ClaimRun => ({
  ...WARM,
  variant,
  overrides: [...WARM.overrides, ...own, ...TWO_BOXES],
});

const CONTEXTS: Claim = {
  number: 5,
  name: 'context-and-credit',
  title: 'Context modes, and credit by turns',
  text: [
    'Sokoban 6 × 6 with two boxes, up to ten moves in five turns: token-level and bi-level GAE, and three contexts: the whole episode, the last two turns, or the current turn.',
    'Each context has warm starts in that context, on the same games.',
  ],
  runs: [
    { ...WARM, overrides: [...WARM.overrides, ...TWO_BOXES] },
    warmInWindow('warm, last two turns', LAST_TWO),
    warmInWindow('warm, current turn', CURRENT),
    ...(
      [
        ['full context, token-level GAE', 'warm', ['recipe=starpo']],
        ['full context, bi-level GAE', 'warm', ['recipe=starpo_bi_level']],
        ['last two turns', 'warm-last-two-turns', ['recipe=starpo', ...LAST_TWO]],
        ['current turn alone', 'warm-current-turn', ['recipe=starpo', ...CURRENT]],
      ] as const
    ).map(([variant, warm, own]) => ({
      variant,
      config: 'configs/sokoban-nano.yaml',
      overrides: [
        ...own,
        ...TWO_BOXES,
        `policy.init={folder}/${warm}-seed-{seed}/checkpoints/step-000000/policy`,
        'warm_start=null',
        EVERY_SEED_ONE_TEST,
        ...within(500, 15),
      ],
    })),
  ],
  pairs: [
    ['full context, token-level GAE', 'full context, bi-level GAE'],
    ['full context, token-level GAE', 'last two turns'],
    ['full context, token-level GAE', 'current turn alone'],
  ],
  references: [],
};

/** A recipe of the field in short form, next to GRPO with the same settings. */
const lake = (recipe: string): ClaimRun => ({
  variant: `60 iterations, ${recipe}`,
  config: 'configs/frozenlake-grpo.yaml',
  overrides: [
    `recipe=${recipe}`,
    ...FROM_WARM,
    'optimizer.learning_rate=5e-4',
    'training.validate_every=20',
    ...within(60, 30),
  ],
});

const RECIPES: Claim = {
  number: 6,
  name: 'recipes',
  title: 'The recipes as they are',
  text: [
    'Results of `npm run trainer -- train configs/<recipe>.yaml`. Success is sampled. “Before” is after the warm start, on random play in bandits and `frozenlake-grpo`, and on the best player’s games in the others.',
    'The rows of 60 iterations are other recipes with `frozenlake-grpo`, from one warm start. They differ in aggregation as well: `token_mean` in DPPO and ECHO, `seq_mean_token_mean` in GRPO and GDPO.',
  ],
  runs: [
    ...[
      'bandit-nano',
      'frozenlake-grpo',
      'frozenlake-demonstrations',
      'sokoban-nano',
      'sokoban-nano-grpo',
    ].map(name => ({
      variant: name,
      config: `configs/${name}.yaml`,
      overrides: ['training.max_seconds=1800'],
    })),
    { variant: 'warm', config: 'configs/frozenlake-grpo.yaml', overrides: [], warmStart: true },
    ...['grpo', 'dppo', 'echo', 'gdpo'].map(lake),
  ],
  pairs: [],
  references: [...LAKE_PLAYERS, ...ROOM_PLAYERS],
};

const SHOWCASE: Claim = {
  number: 7,
  name: 'showcase',
  title: 'What reinforcement learning adds',
  text: [
    'The two recipes of the README: `npm start` begins with random play, Sokoban with 700 games of the best player. Success is sampled, on new lakes and on layouts of rooms that never occur in training.',
  ],
  runs: (
    [
      ['quickstart', 180],
      ['sokoban-demonstrations', 600],
    ] as const
  ).map(([name, seconds]) => ({
    variant: name,
    config: `configs/${name}.yaml`,
    overrides: [EVERY_SEED_ONE_TEST, `training.max_seconds=${seconds}`],
  })),
  pairs: [],
  references: [...LAKE_PLAYERS, ...ROOM_PLAYERS],
};

export const CLAIMS: readonly Claim[] = [
  HEADLINE,
  GENERALIST,
  THINKING,
  FILTERS,
  CONTEXTS,
  RECIPES,
  SHOWCASE,
  PUBLISHED_MODEL,
  PUBLISHED_MODEL_COUNTDOWN,
];
