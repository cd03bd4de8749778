import type { Metrics } from '../../data/metrics.ts';
import type { Generator } from '../../generation/generator.ts';
import type { Episode } from '../../rollout/episode.ts';

/** The generator a run samples from, kept in step with the policy that learns. */
export interface GenerationPort {
  readonly generator: Generator;
  /** The policy's weights have changed: what is sampled from now on comes from them. */
  publish(): Promise<void>;
  /**
   * Compares log-probabilities that came with an iteration's tokens with the policy's own, where it is time to.
   * @throws GenerationGapError when they are too far apart
   */
  check(step: number, episodes: readonly Episode[]): Promise<Metrics>;
  takeMetrics(): Metrics;
  close(): Promise<void>;
}
