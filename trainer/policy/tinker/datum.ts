import { countLossTokens, predictedTokens } from '../../algorithms/losses/aggregation.ts';
import { type LossInputs, lossInputs, lossStructure } from '../../algorithms/losses/inputs.ts';
import type { LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { WireDatum, WireTensor } from '../../tinker/proto.ts';
import type { ScoreRequest } from '../policy.ts';
import type { ScoredBatch } from './loss-program.ts';
import type { TinkerProfile } from './profiles.ts';
import type { TinkerLoss } from './training-session.ts';

/** Arrays of a sequence by token: entry t belongs to token t, predicted from tokens < t. */
type TokenArrays = Readonly<Record<string, Float32Array>>;

/** The server's computation of a loss. */
export interface LossRoute {
  /** The server's loss; undefined where the gradient by log-probabilities is sent instead. */
  readonly loss?: TinkerLoss;
  /** The server's inputs of the loss, besides the targets. */
  readonly arrays: (sequence: TrainingSequence) => TokenArrays;
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
export function scoredDatum({ tokenIds }: Pick<ScoreRequest, 'tokenIds'>): WireDatum {
  return datumOf(tokenIds, { weights: new Float32Array(tokenIds.length).fill(1) });
}

/** Results at positions of a datum, back at the tokens they are about; 0 for the first. */
export function atTokens(values: Float32Array): Float32Array {
  const out = new Float32Array(values.length + 1);
  out.set(values, 1);
  return out;
}

/** Inputs of an update besides log-probabilities. @throws RangeError naming the setting that the API has no room for */
export function preparedLoss(
  sequences: readonly TrainingSequence[],
  settings: LossSettings,
): Omit<ScoredBatch, 'logProbs'> {
  if (settings.entropyCoefficient > 0) {
    throw new RangeError(
      `loss.entropy_coefficient is ${settings.entropyCoefficient}, and a Tinker server returns no entropies: set it to 0`,
    );
  }
  const crossEntropy = sequences.some(sequence => sequence.crossEntropyWeights !== undefined);
  const structure = lossStructure(settings, { value: false, entropy: false, crossEntropy });
  return { sequences, settings, structure, counts: countLossTokens(sequences) };
}

/**
 * The route of a loss: the server's own where it computes the same, with aggregation, weights of sequences and off-policy weights
 * in the advantages; else the gradient by log-probabilities, which takes one more forward pass. `dro` is such a one: the server's
 * has no mask, and would pull on the tokens of prompts.
 */
export function lossRoute(batch: Omit<ScoredBatch, 'logProbs'>, { reduction }: TinkerProfile): LossRoute {
  const { settings, structure, counts } = batch;
  const inputs = (sequence: TrainingSequence) => lossInputs(sequence, settings, structure, counts);
  const bounds = { clip_low_threshold: 1 - settings.clipLow, clip_high_threshold: 1 + settings.clipHigh };
  const arrays = (sequence: TrainingSequence) => ratioArrays(inputs(sequence));
  const alone = structure.kl === null && structure.crossEntropy === undefined;
  switch (structure.policy) {
    case null:
      // A mean over weights is not a sum with them.
      if (reduction === 'mean' || structure.kl !== null) break;
      return {
        loss: { name: 'cross_entropy', config: {} },
        arrays: sequence => ({ weights: inputs(sequence).crossEntropyWeights! }),
      };
    case 'ppo':
    case 'decoupled_ppo':
      if (!alone || structure.dualClip) break;
      return { loss: { name: 'ppo', config: bounds }, arrays };
    case 'cispo':
      if (!alone) break;
      return { loss: { name: 'cispo', config: bounds }, arrays };
  }
  return { arrays: () => ({}) };
}

/**
 * The gradient by log-probabilities as a loss of the server: with ratios of 1 the gradient of `importance_sampling` is that of
 * −Σ A·log π.
 */
export function gradientRoute(
  gradients: ReadonlyMap<TrainingSequence, Float32Array>,
  scores: ReadonlyMap<TrainingSequence, Float32Array>,
): Required<LossRoute> {
  return {
    loss: { name: 'importance_sampling', config: {} },
    arrays: sequence => ({
      logprobs: scores.get(sequence)!,
      advantages: gradients.get(sequence)!.map(gradient => -gradient),
    }),
  };
}

/** Datums of a step for a server that sums, or for one that averages: its means are then canceled. */
export function stepData(
  sequences: readonly TrainingSequence[],
  { arrays }: LossRoute,
  { reduction }: TinkerProfile,
): WireDatum[] {
  return sequences.map(sequence => {
    const own = arrays(sequence);
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

function ratioArrays({ oldLogProbs, advantages, policyWeights }: LossInputs): TokenArrays {
  return {
    logprobs: oldLogProbs!,
    advantages: advantages!.map((advantage, t) => advantage * policyWeights![t]),
  };
}
