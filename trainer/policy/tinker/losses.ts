import { predictedTokens } from '../../algorithms/losses/aggregation.ts';
import { lossInputs } from '../../algorithms/losses/inputs.ts';
import type { LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { WireDatum, WireTensor } from '../../tinker/proto.ts';
import { averagedLoss, type LossBatch } from '../learning/loss-program.ts';
import type { Score, ScoreRequest } from '../policy.ts';
import { TinkerError } from './http.ts';
import type { TinkerProfile } from './profiles.ts';
import { CROSS_ENTROPY, type TinkerLoss } from './training-session.ts';

/** Arrays of a sequence by token: entry t belongs to token t, predicted from tokens < t. */
type TokenArrays = Readonly<Record<string, Float32Array>>;

/** The server's route for a loss. */
export interface LossRoute {
  readonly loss: TinkerLoss;
  /** The server's inputs of the loss, besides the targets, for the sequence at an index of the batch. */
  readonly arrays: (sequence: TrainingSequence, index: number) => TokenArrays;
}

/** A datum: N − 1 input tokens, and at position i what belongs to token i + 1, its target. */
export function datumOf(tokenIds: Int32Array, arrays: TokenArrays): WireDatum {
  const shape = [tokenIds.length - 1];
  const inputs = new Map<string, WireTensor>([['target_tokens', { values: tokenIds.subarray(1), shape }]]);
  for (const [name, values] of Object.entries(arrays))
    inputs.set(name, { values: values.subarray(1), shape });
  return { tokens: tokenIds.subarray(0, -1), inputs };
}

/** A datum with targets to score. */
export function scoredDatum({ tokenIds }: { readonly tokenIds: Int32Array }): WireDatum {
  return datumOf(tokenIds, { weights: new Float32Array(tokenIds.length).fill(1) });
}

/** log p of a token is not above this: sums of float32 end a little above 0. */
const MAX_LOG_PROB = 1e-3;

/**
 * Scores as a server returned them. Entropies are NaN: the API does not return them.
 * @param found log p of the tokens from position `first` on
 * @throws TinkerError for a number that is not a log-probability
 */
export function scoreOf(
  url: string,
  { tokenIds, lossMask }: Pick<ScoreRequest, 'tokenIds' | 'lossMask'>,
  found: Float32Array,
  first: number,
): Score {
  const logProbs = new Float32Array(tokenIds.length);
  const entropies = new Float32Array(tokenIds.length);
  for (let t = 1; t < tokenIds.length; t++) {
    if (!lossMask[t]) continue;
    logProbs[t] = found[t - first];
    entropies[t] = Number.NaN;
    if (logProbs[t] <= MAX_LOG_PROB && logProbs[t] > Number.NEGATIVE_INFINITY) continue;
    throw damaged(url, `${logProbs[t]} as log-probability of token ${t}`);
  }
  return { logProbs, entropies };
}

/** The error of a number that no server may return. */
export const damaged = (url: string, what: string): TinkerError =>
  new TinkerError(
    `${url}: the server returned ${what}: a step that was in progress may have been applied; resume the run from its last checkpoint`,
  );

/**
 * Inputs of an update besides log-probabilities.
 * @throws RangeError naming a setting that the API does not have
 */
export function preparedLoss(sequences: readonly TrainingSequence[], settings: LossSettings): LossBatch {
  if (settings.entropyCoefficient > 0) {
    throw new RangeError(
      `loss.entropy_coefficient is ${settings.entropyCoefficient}, and a Tinker server returns no entropies: set it to 0`,
    );
  }
  const crossEntropy = sequences.some(sequence => sequence.crossEntropyWeights !== undefined);
  return averagedLoss(sequences, settings, { value: false, entropy: false, crossEntropy });
}

/**
 * The server's own route of a loss, where its result is the same. Advantages include aggregation, sequence weights and
 * off-policy weights. Undefined otherwise: {@link gradientRoute} then takes one more forward pass. `dro` is such a
 * loss: the server's has no mask, and would act on prompt tokens.
 */
export function lossRoute(
  { settings, structure, counts }: LossBatch,
  { reduction }: TinkerProfile,
): LossRoute | undefined {
  const inputs = (sequence: TrainingSequence) => lossInputs(sequence, settings, structure, counts);
  const { policy, kl, crossEntropy, dualClip } = structure;
  if (policy === null) {
    // A mean over weights differs from a weighted sum.
    if (reduction === 'mean' || kl !== null) return undefined;
    const arrays = (sequence: TrainingSequence) => ({ weights: inputs(sequence).crossEntropyWeights! });
    return { loss: CROSS_ENTROPY, arrays };
  }
  const lossFn = policy === 'decoupled_ppo' ? 'ppo' : policy;
  const isThere = lossFn === 'cispo' || (lossFn === 'ppo' && !dualClip);
  if (!isThere || kl !== null || crossEntropy) return undefined;
  const lossConfig = { clip_low_threshold: 1 - settings.clipLow, clip_high_threshold: 1 + settings.clipHigh };
  const arrays = (sequence: TrainingSequence) => {
    const { oldLogProbs, advantages, policyWeights } = inputs(sequence);
    return {
      logprobs: oldLogProbs!,
      advantages: advantages!.map((advantage, t) => advantage * policyWeights![t]),
    };
  };
  return { loss: { lossFn, lossConfig }, arrays };
}

/**
 * The gradient by log-probabilities as a loss of the server: with ratios of 1, `importance_sampling` has the gradient
 * of −Σ A·log π.
 */
export function gradientRoute(
  gradients: readonly Float32Array[],
  logProbs: readonly Float32Array[],
): LossRoute {
  const arrays = (_: TrainingSequence, i: number) => ({
    logprobs: logProbs[i],
    advantages: gradients[i].map(gradient => -gradient),
  });
  return { loss: { lossFn: 'importance_sampling', lossConfig: {} }, arrays };
}

/** Datums of a step for a server that sums, or for one that averages, with its means canceled. */
export function stepData(
  sequences: readonly TrainingSequence[],
  { arrays }: LossRoute,
  { reduction }: TinkerProfile,
): WireDatum[] {
  return sequences.map((sequence, i) => {
    const own = arrays(sequence, i);
    if (reduction === 'sum' || !own.advantages) return datumOf(sequence.tokenIds, own);
    const weights = Float32Array.from(predictedTokens(sequence));
    const factor = weights.reduce((sum, weight) => sum + weight, 0) * sequences.length;
    return datumOf(sequence.tokenIds, {
      ...own,
      weights,
      advantages: own.advantages.map(advantage => factor * advantage),
    });
  });
}
