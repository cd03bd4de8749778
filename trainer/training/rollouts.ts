import type { Episode } from '../rollout/episode.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import type { Metrics } from './episode-metrics.ts';

/** How the tokens of a collection are drawn. */
export interface DrawSettings {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
}

export interface PlayOptions extends DrawSettings {
  /** Seeds the draws; the levels follow the groups' own seeds. */
  readonly seed: number;
  readonly signal: AbortSignal;
}

/** Episodes of whole groups, in the order of the groups, and what happened on the way. */
export interface Played {
  readonly episodes: readonly Episode[];
  readonly metrics: Metrics;
}

/** Plays groups of episodes with the policy as it is now. All that the training loop knows of environments. */
export interface Rollouts {
  /**
   * @throws the signal's reason when it is aborted; nothing of the collection counts then
   */
  play(groups: readonly GroupPlan[], options: PlayOptions): Promise<Played>;
}
