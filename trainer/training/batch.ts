import type { TrainingSequence } from '../policy/policy.ts';
import type { Episode } from '../rollout/episode.ts';
import type { Metrics } from './episode-metrics.ts';
import { trainingSequences } from './experience.ts';
import type { RunSettings } from './settings.ts';

export interface Batch {
  readonly sequences: readonly TrainingSequence[];
  readonly metrics: Metrics;
}

/**
 * Episodes of an iteration as the batch to train on.
 * @param actionTokens ids of the tokens that actions are made of, per tag
 */
export function makeBatch(
  episodes: readonly Episode[],
  settings: RunSettings,
  actionTokens: ReadonlyMap<string, ReadonlySet<number>>,
): Batch {
  const { algorithm } = settings;
  const sequences = trainingSequences(episodes, {
    advantage: algorithm.advantage,
    gamma: algorithm.gamma,
    lambda: algorithm.lambda,
    turnLambda: algorithm.turn_lambda,
    highLevelGamma: algorithm.high_level_gamma,
    stepWeight: algorithm.step_weight,
    whiten: algorithm.whiten,
    rewardScale: algorithm.reward_scale,
    ...(algorithm.entropy_on === 'actions' ? { entropyTokens: actionTokens } : {}),
  });
  return { sequences, metrics: {} };
}
