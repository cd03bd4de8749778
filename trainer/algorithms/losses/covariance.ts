import { mean } from '../statistics.ts';
import {
  boundedLogRatios,
  clampLogRatio,
  clippedSurrogate,
  LOG_RATIO_LIMIT,
  type PolicyLoss,
} from './policy-loss.ts';
import { above, atLeast, type LossSettings } from './settings.ts';

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

/**
 * PPO's clip, and no loss at all for a few random tokens with a large covariance of advantage and log-probability:
 * these use up the entropy. `selectByCovariance` chooses them before each optimizer step. There is no dual clip.
 * Source: arXiv 2505.22617; verl `compute_policy_loss_clip_cov`.
 */
export const clipCov = {
  name: 'clip_cov',
  kind: 'ratio',
  reads: ['selected'],
  selects: true,
  check({ clipCov: { ratio, low, high } }) {
    above('loss.clip_cov.ratio', ratio, 0);
    if (!(ratio <= 1))
      throw new RangeError(`loss.clip_cov.ratio is ${ratio}; it is a share of the tokens, at most 1`);
    if (!(low < high)) {
      throw new RangeError(`loss.clip_cov.low … high is ${low} … ${high}; it must be low < high`);
    }
  },
  tokenLosses(g, input) {
    const logRatios = boundedLogRatios(g, input);
    const { losses, clipped } = clippedSurrogate(g, input, g.exp(logRatios));
    return { losses: g.where(g.greater(input.token('selected'), 0.5), 0, losses), logRatios, clipped };
  },
} as const satisfies PolicyLoss;

/**
 * loss = −A·ρ, + coefficient · |log ρ| for the few tokens with the largest covariance of advantage and log-probability:
 * these use up the entropy. `selectByCovariance` chooses them before each optimizer step. There is no clip. At ρ = 1
 * the penalty has no gradient, so the first step of a batch is plain policy gradient. Source: arXiv 2505.22617; verl
 * `compute_policy_loss_kl_cov`.
 */
export const klCov = {
  name: 'kl_cov',
  kind: 'ratio',
  reads: ['selected'],
  selects: true,
  scalars: { coefficient: ({ klCov: { coefficient } }) => coefficient },
  check({ klCov: { ratio, coefficient } }) {
    above('loss.kl_cov.ratio', ratio, 0);
    if (!(ratio <= 1))
      throw new RangeError(`loss.kl_cov.ratio is ${ratio}; it is a share of the tokens, at most 1`);
    atLeast('loss.kl_cov.coefficient', coefficient, 0);
  },
  tokenLosses(g, input) {
    const logRatios = boundedLogRatios(g, input);
    const surrogate = g.neg(g.mul(input.token('advantages'), g.exp(logRatios)));
    const penalty = g.mul(g.abs(logRatios), input.scalar('policy.coefficient'));
    const selected = g.greater(input.token('selected'), 0.5);
    return {
      losses: g.add(surrogate, g.where(selected, penalty, 0)),
      logRatios,
      clipped: g.greater(logRatios, LOG_RATIO_LIMIT),
    };
  },
} as const satisfies PolicyLoss;
