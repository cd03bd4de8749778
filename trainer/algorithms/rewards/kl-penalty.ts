import { klEstimate } from '../losses/kl.ts';
import type { KlEstimator } from '../losses/settings.ts';

/**
 * KL as reward: r_t − β·kl(log π_t − log π_ref,t) at every sampled token, so that the advantages see the distance to the
 * reference policy (Ziegler et al., 2019). The other way, KL as loss, is `loss.kl`; use one of them.
 */
export function penalizeRewards(
  sequence: {
    readonly lossMask: ArrayLike<number>;
    readonly rewards: ArrayLike<number>;
    readonly logProbs: ArrayLike<number>;
    readonly referenceLogProbs: ArrayLike<number>;
  },
  estimator: KlEstimator,
  coefficient: number,
): Float64Array {
  const { lossMask, rewards, logProbs, referenceLogProbs } = sequence;
  return Float64Array.from(rewards, (reward, t) =>
    lossMask[t] ? reward - coefficient * klEstimate(estimator, logProbs[t] - referenceLogProbs[t]) : reward,
  );
}
