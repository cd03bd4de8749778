import { type Claim, type ClaimRun, EVERY_SEED_ONE_TEST, within } from './claim.ts';

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
    'One policy of half a million weights learns eight games by one recipe: a warm start on the games of reference players, then groups of 8 compared with their mean; each game’s share of the batch follows its success. A specialist for each game has the same policy, recipe and number of episodes of that game.',
    'Success is sampled, on levels of another split than training’s. “Harder” are presets that nothing was trained on: two boxes, more holes, new names of arms, and so on. The caps on moves are those of `configs/generalist-nano.yaml`.',
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
