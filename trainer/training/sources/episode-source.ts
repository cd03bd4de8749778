import type { Metrics } from '../../data/metrics.ts';
import type { SamplingDistribution } from '../../generation/generation.ts';
import type { PrefixState } from '../../rollout/branching/prefix.ts';
import type { Episode } from '../../rollout/episode.ts';
import type { ReplayedLevel, TagSuccess } from '../../rollout/levels.ts';
import type { GroupPlan } from '../../rollout/tag.ts';

export interface PlayOptions {
  readonly sampling: SamplingDistribution;
  /** Seeds the draws; the levels follow the groups' own seeds. */
  readonly seed: number;
  readonly signal: AbortSignal;
}

/** Episodes of whole groups, in the order of the groups, and metrics of the collection. */
export interface PlayedGroups {
  readonly episodes: readonly Episode[];
  readonly metrics: Metrics;
}

/** Plays groups of episodes with the current policy: the training loop's only access to environments. */
export interface Rollouts {
  /** @throws the signal's reason when it is aborted; then nothing of the collection counts */
  play(groups: readonly GroupPlan[], options: PlayOptions): Promise<PlayedGroups>;
}

/** Position of a source, for checkpoints: a source opened there yields the same remaining episodes. */
export interface SourcePosition {
  /** Seed of the next group to open. */
  readonly nextSeed: number;
  /** Groups that were opened before it and are not trained on yet, as their distance from the run's first. */
  readonly pendingGroups?: readonly number[];
  /** Moving averages of success by tag, where the curriculum follows them. */
  readonly tagSuccess?: TagSuccess;
  /** Levels that may be played again, where there is level replay. */
  readonly replayLevels?: readonly ReplayedLevel[];
  /** Episodes that later ones may continue, and the controllers of their share. */
  readonly prefixes?: PrefixState;
}

/** Supplies training with episodes, iteration by iteration. */
export interface EpisodeSource {
  readonly position: SourcePosition;
  /**
   * The episodes of an iteration, counted from 1: whole groups, each with its own number.
   * @throws the signal's reason of the run when it is asked to stop
   */
  collect(step: number): Promise<PlayedGroups>;
  /** More groups for the same iteration, in place of unusable ones. */
  refill(step: number, groups: number): Promise<PlayedGroups>;
  /** Reports that the iteration's batch has been trained on. */
  trained(): void;
  /** Ends all open episodes. */
  close(): Promise<void>;
}
