import type { PromptTask } from './prompt.ts';

const CAPS = {
  maxTurns: 5,
  maxActionsPerTurn: 2,
  maxActionsPerTrajectory: 10,
  responseLength: 8,
  think: true,
} as const;

const SOKOBAN_ACTIONS = ['Up', 'Down', 'Left', 'Right'];
const SOKOBAN_LEGEND = [
  { symbol: '#', meaning: 'wall' },
  { symbol: '_', meaning: 'floor' },
  { symbol: 'O', meaning: 'target' },
  { symbol: '√', meaning: 'box on target' },
  { symbol: 'X', meaning: 'box' },
  { symbol: 'P', meaning: 'you' },
  { symbol: 'S', meaning: 'you on a target' },
];

export const SOKOBAN: PromptTask = {
  ...CAPS,
  description: {
    environmentId: 'Sokoban-v0',
    instruction: 'Push every box onto a target.',
    legend: SOKOBAN_LEGEND,
    actions: SOKOBAN_ACTIONS,
    vocabulary: [...SOKOBAN_LEGEND.map(entry => entry.symbol), ...SOKOBAN_ACTIONS],
  },
};

const LAKE_ACTIONS = ['Left', 'Down', 'Right', 'Up'];
const LAKE_LEGEND = [
  { symbol: 'P', meaning: 'you' },
  { symbol: '_', meaning: 'ice' },
  { symbol: 'O', meaning: 'hole' },
  { symbol: 'G', meaning: 'goal' },
  { symbol: 'X', meaning: 'you in a hole' },
  { symbol: '√', meaning: 'you on the goal' },
];

export const LAKE: PromptTask = {
  ...CAPS,
  description: {
    environmentId: 'FrozenLake-v0',
    instruction: 'Cross the lake.',
    legend: LAKE_LEGEND,
    actions: LAKE_ACTIONS,
    vocabulary: [...LAKE_LEGEND.map(entry => entry.symbol), ...LAKE_ACTIONS],
  },
};

export const BANDIT: PromptTask = {
  ...CAPS,
  maxTurns: 1,
  maxActionsPerTurn: 1,
  maxActionsPerTrajectory: 1,
  description: {
    environmentId: 'Bandit-v0',
    instruction: 'Pull one of two arms.',
    legend: [],
    actionFormat: 'the name of an arm',
    vocabulary: ['Clerk', 'Stuntman', 'or', 'paid', '0.1', '1', '0'],
  },
};

export const ROOM = '######\n#_P__#\n#_X__#\n#__O_#\n#____#\n######';
export const POND = '___P\n___O\n____\n__G_';
