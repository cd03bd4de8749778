import type { ReferencePlayers } from './reference-players.ts';

/** One training run of a claim. */
export interface ClaimRun {
  /** Name of the runs that differ only by their seed: a row of the table. */
  readonly variant: string;
  readonly config: string;
  /** `{seed}` is replaced by the run's seed and `{folder}` by the folder of the claim's runs. */
  readonly overrides: readonly string[];
  /** Only its warm start, for other runs to begin with. */
  readonly warmStart?: boolean;
  /** The warm start learns a solver's games with its plan as thoughts. */
  readonly thoughts?: boolean;
}

/** A claim about what is learned, the runs that show it and what they are compared with. */
export interface Claim {
  readonly number: number;
  /** Name of its page and data under docs/results. */
  readonly name: string;
  readonly title: string;
  /** Paragraphs above the table. */
  readonly text: readonly string[];
  readonly runs: readonly ClaimRun[];
  /** Pairs of variants that are compared seed by seed: without and with. */
  readonly pairs: readonly (readonly [without: string, with_: string])[];
  /** The page also shows the success in each environment, next to that of these players. */
  readonly players?: readonly ReferencePlayers[];
  /** Published figures, as further rows of the table. */
  readonly references: readonly {
    readonly name: string;
    readonly success: string;
    readonly source: string;
  }[];
}

const MINUTE = 60;

/** Settings for runs of one length: at most `steps` iterations and `minutes` minutes. */
export const within = (steps: number, minutes: number): string[] => [
  `training.steps=${steps}`,
  `training.max_seconds=${minutes * MINUTE}`,
];

export const EVERY_SEED_ONE_TEST = 'seeds.validation=123';

/** From the warm start of the same seed, 32 groups of 8. */
export const FROM_WARM = [
  'policy.init={folder}/warm-seed-{seed}/checkpoints/step-000000/policy',
  'warm_start=null',
  EVERY_SEED_ONE_TEST,
  'rollout.env_groups=32',
  'rollout.group_size=8',
];

export const FILTER = [
  'algorithm.filter.strategy=top_p',
  'algorithm.filter.value=0.9',
  'algorithm.filter.include_zero=false',
];
export const NO_FILTER = ['algorithm.filter.strategy=none', 'algorithm.filter.include_zero=true'];
export const CRITIC_FREE = ['optimizer.learning_rate=2e-4', 'loss.entropy_coefficient=0.001'];

const settingOf = (override: string) => override.slice(0, override.indexOf('='));

/** Overrides with further ones in place of those of the same settings. */
export function replaceOverrides(overrides: readonly string[], own: readonly string[]): string[] {
  const replaced = new Set(own.map(settingOf));
  return [...overrides.filter(text => !replaced.has(settingOf(text))), ...own];
}
