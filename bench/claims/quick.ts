import { type Claim, type ClaimRun, replaceOverrides, within } from './claim.ts';
import { CLAIMS } from './claims.ts';

/** A claim in a quarter of an hour a seed: fewer and shorter runs, with a separate page, data and runs. */
interface QuickForm {
  readonly claim: string;
  /** Parts left out, printed under the text of the whole claim. */
  readonly text: string;
  /** Overrides of a variant, in place of those of the same settings; undefined leaves the variant out. */
  readonly overrides: (run: ClaimRun) => readonly string[] | undefined;
  /** Names of the players that play; all without. */
  readonly players?: readonly string[];
}

const GAMES = ['Sokoban', 'FrozenLake', 'RubiksCube', 'Countdown'];

const FORMS: readonly QuickForm[] = [
  {
    claim: 'headline',
    text: 'The short form leaves out Sokoban without a warm start, and Sokoban has 8,000 demonstrations and 12 minutes instead of 20,000 and 30.',
    overrides: ({ variant }) => {
      if (variant === 'FrozenLake, PPO') return [];
      return variant === 'Sokoban, warm start and Dr. GRPO'
        ? ['warm_start.episodes=8000', ...within(600, 12)]
        : undefined;
    },
  },
  {
    claim: 'generalist',
    text: 'The short form has four of the eight games (Sokoban, FrozenLake, Rubik’s cube and Countdown), and a quarter of the iterations.',
    overrides: ({ variant }) => {
      if (variant === 'generalist')
        return [
          `train_tags=[${GAMES.map(name => `${name}Train`).join(',')}]`,
          `validation.tags=[${GAMES.map(name => `${name}Unseen`).join(',')}]`,
          'validation.sets.harder.tags=[SokobanTwoBoxes,FrozenLakeHoles,RubiksCubeHarder,CountdownHarder]',
          'warm_start.episodes=12000',
          'training.validate_every=40',
          ...within(160, 10),
        ];
      if (!GAMES.some(name => variant === `${name} alone`)) return undefined;
      return ['training.validate_every=20', ...within(40, 2.5)];
    },
    players: GAMES,
  },
  {
    claim: 'thinking',
    text: 'The short form has 16 groups an iteration instead of 32, and a quarter of the time.',
    overrides: ({ warmStart }) =>
      warmStart ? [] : ['rollout.env_groups=16', 'training.validate_every=50', ...within(100, 3.5)],
  },
  {
    claim: 'filter-gains',
    text: 'The short form compares PPO and GRPO, with half the demonstrations and five iterations for eight.',
    overrides: ({ variant, warmStart }) => {
      if (warmStart) return ['warm_start.episodes=1500'];
      return /^(PPO|GRPO)/.test(variant) ? within(150, 4) : undefined;
    },
  },
  {
    claim: 'context-and-credit',
    text: 'The short form goes a third of the way.',
    overrides: ({ warmStart }) =>
      warmStart ? ['warm_start.episodes=1500'] : ['training.validate_every=30', ...within(150, 4)],
  },
  {
    claim: 'recipes',
    text: 'The short form has the two shortest recipes.',
    overrides: ({ variant }) =>
      ['bandit-nano', 'frozenlake-grpo'].includes(variant) ? ['training.max_seconds=300'] : undefined,
  },
  {
    claim: 'showcase',
    text: 'The short form goes a third of the way.',
    overrides: ({ variant }) =>
      variant === 'quickstart' ? within(150, 1) : ['training.validate_every=25', ...within(120, 4)],
  },
  {
    claim: 'smollm2',
    text: 'The short form has half the iterations and questions.',
    overrides: ({ variant }) =>
      variant === 'untouched'
        ? ['validation.episodes=64', ...within(0, 2)]
        : ['validation.episodes=64', ...within(10, 8)],
  },
  {
    claim: 'smollm2-countdown',
    text: 'The short form has three iterations and half the puzzles.',
    overrides: ({ variant }) =>
      variant === 'untouched'
        ? ['validation.episodes=64', ...within(0, 2)]
        : ['validation.episodes=64', ...within(3, 8)],
  },
];

function quickForm({ claim: name, text, overrides, players }: QuickForm): Claim {
  const claim = CLAIMS.find(one => one.name === name)!;
  const runs = claim.runs.flatMap((run): ClaimRun[] => {
    const own = overrides(run);
    if (own === undefined) return [];
    return [{ ...run, overrides: replaceOverrides(run.overrides, own) }];
  });
  const variants = new Set(runs.map(({ variant }) => variant));
  return {
    ...claim,
    name: `${claim.name}-quick`,
    title: `${claim.title}: short form`,
    text: [...claim.text, text],
    runs,
    pairs: claim.pairs.filter(pair => pair.every(variant => variants.has(variant))),
    ...(claim.players
      ? { players: claim.players.filter(one => players === undefined || players.includes(one.name)) }
      : {}),
  };
}

/** The claims in their short forms. */
export const QUICK_CLAIMS: readonly Claim[] = FORMS.map(quickForm);
