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
