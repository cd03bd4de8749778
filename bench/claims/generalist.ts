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

/** Imitates the games of the best player, by Muon or not, and then plays. */
function specialist(game: (typeof GAMES)[number], games = 3000, iterations = 50, muon = false): ClaimRun {
  const { name, harder } = game;
  return {
    variant: `${name} ${muon ? 'by Muon' : 'alone'}`,
    config: CONFIG,
    overrides: [
      `train_tags=[${name}Train]`,
      `validation.tags=[${testedTag(game)}]`,
      `validation.sets.harder.tags=[${harder}]`,
      'rollout.adaptive_curriculum=null',
      `warm_start.episodes=${games}`,
      ...(muon ? ['warm_start.muon={}'] : []),
      EVERY_SEED_ONE_TEST,
      ...within(iterations, 8),
    ],
  };
}

export const GENERALIST: Claim = {
  number: 2,
  name: 'generalist',
  title: 'One small policy for eight games',
  text: [
    'One policy of half a million weights learns eight games by one recipe, `configs/generalist-nano.yaml`: a warm start on the games of reference players, then groups of 8 compared with their mean; each game’s share of the batch follows its success. A specialist (“alone”) has the same policy, recipe and number of episodes of its game. Those “by Muon” have Muon in the warm start, 6,000 games of Sudoku and 24,000 of Countdown.',
    'Success is sampled, on levels of another split than training’s. “Harder” are presets that nothing was trained on: two boxes, more holes, new names of arms, and so on.',
  ],
  runs: [
    {
      variant: 'generalist',
      config: CONFIG,
      overrides: ['warm_start.episodes=24000', EVERY_SEED_ONE_TEST, ...within(400, 60)],
    },
    ...GAMES.map(game => specialist(game)),
    ...GAMES.filter(({ name }) => name === 'Sudoku').map(game => specialist(game, 6000, 25, true)),
    ...GAMES.filter(({ name }) => name === 'Countdown').map(game => specialist(game, 24_000, 100, true)),
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
