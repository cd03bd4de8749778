import { BOARD_SPEC, describeInForm } from '../core/drawing/grid.ts';
import type { Description, EnvironmentSpec } from '../core/environment.ts';
import { configSchema, type FrozenLakeConfig, optionsSchema, PRESETS } from './config.ts';
import { ACTIONS } from './rules.ts';

export const spec: EnvironmentSpec = {
  id: 'FrozenLake-v0',
  title: 'Frozen lake',
  description: [
    'A player crosses a frozen lake to a goal without falling into a hole. The ice is slippery: the player moves',
    'in the chosen direction with probability `success_rate` and otherwise to one of the two sides, each equally',
    'likely. Walking against the edge leaves the player where it is. The episode ends in a hole or at the goal.',
    '',
    'Reaching the goal pays 1, everything else 0. An action that is not one of the four changes nothing.',
    '',
    'Every reset draws a new lake: each cell is frozen with probability `p_frozen`, start and goal are two',
    'random cells, and the draw is repeated until ice joins them.',
    '',
    'Cells of `grid` in the structured form are 0 player, 1 frozen, 2 hole, 3 goal, 4 player in a hole, 5 player on',
    'the goal.',
  ].join('\n'),
  tags: ['grid', 'navigation', 'stochastic'],
  configSchema,
  optionsSchema,
  presets: PRESETS,
  ...BOARD_SPEC,
  actionSpace: ACTIONS.space,
  rewardRange: [0, 1],
  knownOptimum: {
    success: 0.996,
    source: 'value iteration over 500 random 4 × 4 lakes, at most 100 steps; 0.945 within 10',
  },
  maxEpisodeSteps: 100,
  exampleAction: 'Right',
  history: [{ version: 0, change: 'First version.' }],
};

export function describe(config: FrozenLakeConfig): Description {
  const { symbols, success_rate: rate, observation_format: form } = config;
  const slip =
    rate === 1
      ? 'You always move in the direction you choose.'
      : `The ice is slippery: you move in the direction you choose with probability ${percent(rate)}, and slide to one of the two sides otherwise.`;
  const instruction = `Cross the frozen lake to the goal without falling into a hole. ${slip}`;
  const legend = [
    { symbol: symbols.player, meaning: 'you' },
    { symbol: symbols.frozen, meaning: 'ice' },
    { symbol: symbols.hole, meaning: 'hole' },
    { symbol: symbols.goal, meaning: 'goal' },
    { symbol: symbols.player_in_hole, meaning: 'you in a hole' },
    { symbol: symbols.player_on_goal, meaning: 'you on the goal' },
  ];
  const painted = [
    { symbol: 'figure in orange', meaning: 'you' },
    { symbol: 'light blue', meaning: 'ice' },
    { symbol: 'dark blue disc', meaning: 'hole' },
    { symbol: 'red flag', meaning: 'goal' },
    { symbol: 'figure in a dark blue disc', meaning: 'you in a hole' },
    { symbol: 'figure before a red flag', meaning: 'you on the goal' },
  ];
  return describeInForm(form, { instruction, legend, painted, actions: ACTIONS.names });
}

function percent(rate: number): string {
  return `${Number((rate * 100).toFixed(1))} %`;
}
