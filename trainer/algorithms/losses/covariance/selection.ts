import { mean } from '../../statistics.ts';
import { clampLogRatio } from '../policy-loss.ts';
import type { LossSettings } from '../settings.ts';

/** View of a sequence for the choice of tokens; arrays run over its tokens, and masked entries are never read. */
export interface CovarianceInput {
  readonly lossMask: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
  /** log π_θ under the weights of this optimizer step. */
  readonly logProbs: ArrayLike<number>;
  /** The ratio's denominator. */
  readonly oldLogProbs: ArrayLike<number>;
}

export interface CovarianceSelection {
  /** 1 on the chosen tokens, one array per sequence. */
  readonly selected: readonly Uint8Array[];
  /** `actor/cov_{mean,max}` and `actor/selected_frac`, over the trained tokens of the step. */
  readonly metrics: Readonly<Record<string, number>>;
}

interface Candidate {
  readonly sequence: number;
  readonly token: number;
  readonly covariance: number;
}

/**
 * Chooses the tokens of an optimizer step that `clip_cov` and `kl_cov` treat separately, by cov = (A − mean A)·(log π −
 * mean log π) with means over the step's trained tokens. `kl_cov` takes the largest; `clip_cov` takes random ones with
 * low < cov < high among those that PPO's clip has not stopped. Both take at least one of the ratio · tokens, as long
 * as there is one to take. verl takes the statistics of a micro-batch, so its size changes the result; here they cover
 * the whole step.
 * @param shuffle puts the eligible tokens, given in order of sequences and tokens, in the order they are taken
 */
export function selectByCovariance(
  sequences: readonly CovarianceInput[],
  settings: Pick<LossSettings, 'policy' | 'clipCov' | 'klCov' | 'clipLow' | 'clipHigh'>,
  shuffle: <T>(items: readonly T[]) => readonly T[],
): CovarianceSelection {
  const selected = sequences.map(({ lossMask }) => new Uint8Array(lossMask.length));
  const candidates = covariances(sequences);
  if (candidates.length === 0) return { selected, metrics: {} };
  const { policy, clipCov, klCov } = settings;
  const ratio = policy === 'kl_cov' ? klCov.ratio : clipCov.ratio;
  const count = Math.max(1, Math.floor(ratio * candidates.length));
  const ranked =
    policy === 'kl_cov'
      ? candidates.toSorted((a, b) => b.covariance - a.covariance)
      : shuffle(
          candidates.filter(
            ({ sequence, token, covariance }) =>
              covariance > clipCov.low &&
              covariance < clipCov.high &&
              !isClipped(sequences[sequence], token, settings),
          ),
        );
  const chosen = ranked.slice(0, count);
  for (const { sequence, token } of chosen) selected[sequence][token] = 1;
  const all = candidates.map(({ covariance }) => covariance);
  return {
    selected,
    metrics: {
      'actor/cov_mean': mean(all),
      'actor/cov_max': all.reduce((a, b) => Math.max(a, b)),
      'actor/selected_frac': chosen.length / candidates.length,
    },
  };
}

function covariances(sequences: readonly CovarianceInput[]): Candidate[] {
  const tokens = sequences.flatMap(({ lossMask }, sequence) =>
    Array.from(lossMask).flatMap((on, token) => (on ? [{ sequence, token }] : [])),
  );
  const meanOf = (key: 'advantages' | 'logProbs') =>
    mean(tokens.map(({ sequence, token }) => sequences[sequence][key][token]));
  const [advantage, logProb] = [meanOf('advantages'), meanOf('logProbs')];
  return tokens.map(({ sequence, token }) => {
    const { advantages, logProbs } = sequences[sequence];
    return { sequence, token, covariance: (advantages[token] - advantage) * (logProbs[token] - logProb) };
  });
}

/** True if PPO's clip already stops the token. */
function isClipped(
  { advantages, logProbs, oldLogProbs }: CovarianceInput,
  token: number,
  { clipLow, clipHigh }: Pick<LossSettings, 'clipLow' | 'clipHigh'>,
): boolean {
  const ratio = Math.exp(clampLogRatio(logProbs[token] - oldLogProbs[token]));
  const bounded = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return -advantages[token] * bounded > -advantages[token] * ratio;
}
