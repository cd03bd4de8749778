import { SEQUENCE_LOG_RATIO_LIMIT } from './gspo.ts';
import { clampLogRatio, LOG_RATIO_LIMIT } from './policy-loss.ts';
import type { LossSettings } from './settings.ts';

/** One sequence as a policy loss sees it; all arrays run over its tokens, masked entries are never read. */
export interface ReferenceInput {
  readonly lossMask: ArrayLike<number>;
  /** log π_θ under the weights being trained. */
  readonly logProbs: ArrayLike<number>;
  /** log-probabilities in the ratio's denominator. */
  readonly oldLogProbs: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
  /** 1 on tokens that the loss treats apart. */
  readonly selected?: ArrayLike<number>;
}

export type ClipSettings = Pick<LossSettings, 'clipLow' | 'clipHigh' | 'dualClip'>;

/** Token losses of one sequence, before aggregation. Masked entries are 0. */
export interface ReferenceOutput {
  readonly losses: Float64Array;
  /** Derivative of a token's loss with respect to that token's log π_θ. */
  readonly derivatives: Float64Array;
  /** 1 where the upper or lower clip, or the dual clip, decided the loss. */
  readonly clipped: Uint8Array;
  readonly clippedLower: Uint8Array;
}

export type PolicyLossReference = (input: ReferenceInput, settings: LossSettings) => ReferenceOutput;

export function emptyOutput(length: number): ReferenceOutput {
  return {
    losses: new Float64Array(length),
    derivatives: new Float64Array(length),
    clipped: new Uint8Array(length),
    clippedLower: new Uint8Array(length),
  };
}

/** Clipped surrogate of one token given its ratio: PPO's rule, shared by its relatives. */
export function clippedSurrogate(
  ratio: number,
  advantage: number,
  settings: ClipSettings,
): { loss: number; clipped: boolean; clippedLower: boolean } {
  const plain = -advantage * ratio;
  const bounded = -advantage * Math.min(Math.max(ratio, 1 - settings.clipLow), 1 + settings.clipHigh);
  const clipped = bounded > plain;
  const loss = clipped ? bounded : plain;
  const ceiling = -advantage * settings.dualClip;
  const clippedLower = settings.dualClip > 0 && advantage < 0 && loss > ceiling;
  return { loss: clippedLower ? ceiling : loss, clipped, clippedLower };
}

/** PPO: see ppo.ts. */
export function ppoLoss(input: ReferenceInput, settings: ClipSettings): ReferenceOutput {
  const { lossMask, logProbs, oldLogProbs, advantages } = input;
  const output = emptyOutput(lossMask.length);
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    const logRatio = logProbs[t] - oldLogProbs[t];
    const ratio = Math.exp(clampLogRatio(logRatio));
    const token = clippedSurrogate(ratio, advantages[t], settings);
    output.losses[t] = token.loss;
    const flat = token.clipped || token.clippedLower || Math.abs(logRatio) > LOG_RATIO_LIMIT;
    output.derivatives[t] = flat ? 0 : -advantages[t] * ratio;
    output.clipped[t] = token.clipped ? 1 : 0;
    output.clippedLower[t] = token.clippedLower ? 1 : 0;
  }
  return output;
}

/** GSPO: see gspo.ts. */
export function gspoLoss(input: ReferenceInput, settings: ClipSettings): ReferenceOutput {
  const { lossMask, advantages } = input;
  const output = emptyOutput(lossMask.length);
  const logRatio = meanLogRatio(input);
  const ratio = Math.exp(Math.min(logRatio, SEQUENCE_LOG_RATIO_LIMIT));
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    const token = clippedSurrogate(ratio, advantages[t], { ...settings, dualClip: 0 });
    output.losses[t] = token.loss;
    const flat = token.clipped || logRatio > SEQUENCE_LOG_RATIO_LIMIT;
    output.derivatives[t] = flat ? 0 : -advantages[t] * ratio;
    output.clipped[t] = token.clipped ? 1 : 0;
  }
  return output;
}

/** Mean of log π_θ − log π_old over the trained tokens; 0 when there are none. */
export function meanLogRatio(input: Pick<ReferenceInput, 'lossMask' | 'logProbs' | 'oldLogProbs'>): number {
  const { lossMask, logProbs, oldLogProbs } = input;
  let sum = 0;
  let count = 0;
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    sum += logProbs[t] - oldLogProbs[t];
    count++;
  }
  return count === 0 ? 0 : sum / count;
}

/** CISPO: see cispo.ts. */
export function cispoLoss(input: ReferenceInput, settings: ClipSettings): ReferenceOutput {
  const { lossMask, logProbs, oldLogProbs, advantages } = input;
  const output = emptyOutput(lossMask.length);
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    const ratio = Math.exp(clampLogRatio(logProbs[t] - oldLogProbs[t]));
    const weight = Math.min(Math.max(ratio, 1 - settings.clipLow), 1 + settings.clipHigh);
    output.losses[t] = -weight * advantages[t] * logProbs[t];
    output.derivatives[t] = -weight * advantages[t];
    output.clipped[t] = weight === ratio ? 0 : 1;
  }
  return output;
}

/** Negative log-likelihood of given tokens (supervised learning): loss = −log π_θ. Advantages are not read. */
export function crossEntropyLoss({
  lossMask,
  logProbs,
}: Pick<ReferenceInput, 'lossMask' | 'logProbs'>): ReferenceOutput {
  const output = emptyOutput(lossMask.length);
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    output.losses[t] = -logProbs[t];
    output.derivatives[t] = -1;
  }
  return output;
}

/** By the names of the registry: what each loss is compared with. A new loss brings its reference here. */
export const POLICY_REFERENCES: Readonly<Record<string, PolicyLossReference>> = {
  ppo: ppoLoss,
  gspo: gspoLoss,
  cispo: cispoLoss,
  decoupled_ppo: ppoLoss,
  cross_entropy: crossEntropyLoss,
};
