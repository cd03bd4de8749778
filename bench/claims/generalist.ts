import type { Claim, ClaimRun } from './claim.ts';
import { EVERY_SEED_ONE_TEST, within } from './overrides.ts';

const CONFIG = 'configs/generalist-nano.yaml';

/** Games with their tag for validation, where it is not `<name>Unseen`, and one harder than anything in training. */
const GAMES: readonly { readonly name: string; readonly tested?: string; readonly harder: string }[] = [
  { name: 'Sokoban', harder: 'SokobanTwoBoxes' },
  { name: 'FrozenLake', harder: 'FrozenLakeHoles' },
  { name: 'Bandit', tested: 'BanditTrain', harder: 'BanditNames' },
  { name: 'RubiksCube', harder: 'RubiksCubeHarder' },
  { name: 'Game2048', harder: 'Game2048Harder' },
  { name: 'Sudoku', harder: 'SudokuHarder' },
  { name: 'Countdown', harder: 'CountdownHarder' },
  { name: 'Spatial', harder: 'SpatialHarder' },
];

/** The best reference player, where it is not `optimal`. */
const BEST: { readonly [game: string]: string } = { Game2048: 'heuristic', Spatial: 'oracle' };

const testedTag = ({ name, tested }: (typeof GAMES)[number]) => tested ?? `${name}Unseen`;

function specialist(game: (typeof GAMES)[number]): ClaimRun {
  const { name, harder } = game;
  return {
    variant: `specialist in ${name}`,
    config: CONFIG,
    overrides: [
      `train_tags=[${name}Train]`,
      `validation.tags=[${testedTag(game)}]`,
      `validation.sets.harder.tags=[${harder}]`,
      'rollout.adaptive_curriculum=null',
      'warm_start.episodes=3000',
      EVERY_SEED_ONE_TEST,
      ...within(50, 8),
    ],
  };
}

export const GENERALIST: Claim = {
  number: 2,
  name: 'generalist',
  title: 'One small policy for eight games',
  text: [
    'One policy of half a million weights learns Sokoban, FrozenLake, Bandit, Rubik’s cube 2 × 2, 2048 on 3 × 3, Sudoku 4 × 4, Countdown with three numbers and Spatial by one recipe: a warm start on the games of reference players (expectimax for 2048, an oracle for Spatial, the optimum elsewhere), then groups of 8 compared with their mean, returns in units of each game’s deviation; each game’s share of the batch follows its success. Next to it a specialist for each game: the same policy, recipe and number of episodes of that game, an eighth of the whole.',
    'Success is sampled, on levels of another split than training’s; Bandit, which has no levels, on its twelve pairs of names. “Harder” are presets that nothing was trained on: two boxes, more holes, names of arms that occur nowhere else, four turns of the cube instead of three, the tile in fewer moves, more blanks, larger numbers, a larger room. The caps on moves are those of `configs/generalist-nano.yaml`, so the figures are not those of the environments’ own pages.',
  ],
  runs: [
    {
      variant: 'generalist',
      config: CONFIG,
      overrides: ['warm_start.episodes=24000', EVERY_SEED_ONE_TEST, ...within(400, 60)],
    },
    ...GAMES.map(specialist),
  ],
  pairs: [],
  references: [],
  players: GAMES.map(game => ({
    name: game.name,
    config: CONFIG,
    policies: ['random', BEST[game.name] ?? 'optimal'],
    tags: [testedTag(game), game.harder],
  })),
};
