import { BOARD_SPEC, describeInForm } from '../core/drawing/grid.ts';
import type { Description, EnvironmentSpec } from '../core/environment.ts';
import { configSchema, optionsSchema, PRESETS, type SokobanConfig } from './config.ts';
import { ACTIONS, BOX_REWARD, SOLVED_REWARD, STEP_REWARD } from './rules.ts';

export const spec: EnvironmentSpec = {
  id: 'Sokoban-v0',
  title: 'Sokoban',
  description: [
    'A warehouse keeper pushes boxes onto targets. The player moves up, down, left or right; a box in the way is',
    'pushed along if the cell behind it is free, and boxes can never be pulled. The episode ends when every',
    'target holds a box. Some pushes cannot be undone and leave a room that cannot be solved any more.',
    '',
    'Every action costs 0.1. An action after which more boxes are on targets than before pays 1, one after which',
    'fewer do costs 1, and solving the room pays 10. The count starts at 0, so boxes that are on targets from',
    'the start pay with the first action. An action that is not one of the four changes nothing and costs nothing.',
    '',
    'A room is dug by a random walk; player and targets are placed at random; a search then pulls the boxes',
    'off their targets, so every room can be solved.',
    '',
    'Cells of `grid` in the structured form are 0 wall, 1 floor, 2 target, 3 box on target, 4 box, 5 player, 6 player',
    'on target.',
  ].join('\n'),
  tags: ['grid', 'puzzle', 'planning', 'deterministic'],
  configSchema,
  optionsSchema,
  presets: PRESETS,
  ...BOARD_SPEC,
  actionSpace: ACTIONS.space,
  rewardRange: [STEP_REWARD - BOX_REWARD, STEP_REWARD + BOX_REWARD + SOLVED_REWARD],
  knownOptimum: { success: 1, source: 'breadth-first search solves every generated room' },
  maxEpisodeSteps: 100,
  exampleAction: 'Up',
  history: [{ version: 0, change: 'First version.' }],
};

export function describe(config: SokobanConfig): Description {
  const { symbols, observation_format: form } = config;
  const instruction =
    'Push every box onto a target. You push a box by walking into it; the cell behind it must be free, and boxes cannot be pulled.';
  const legend = [
    { symbol: symbols.wall, meaning: 'wall' },
    { symbol: symbols.floor, meaning: 'floor' },
    { symbol: symbols.target, meaning: 'target' },
    { symbol: symbols.box_on_target, meaning: 'box on target' },
    { symbol: symbols.box, meaning: 'box' },
    { symbol: symbols.player, meaning: 'you' },
    { symbol: symbols.player_on_target, meaning: 'you on a target' },
  ];
  const painted = [
    { symbol: 'red bricks', meaning: 'wall' },
    { symbol: 'bare ground', meaning: 'floor' },
    { symbol: 'red ring', meaning: 'target' },
    { symbol: 'green crate', meaning: 'box on target' },
    { symbol: 'brown crate', meaning: 'box' },
    { symbol: 'figure in blue', meaning: 'you' },
    { symbol: 'figure in blue on a red ring', meaning: 'you on a target' },
  ];
  return describeInForm(form, { instruction, legend, painted, actions: ACTIONS.names });
}
