/** Log-ratios are clamped to ±20 before the exponential, as verl does. */
export const LOG_RATIO_LIMIT = 20;

/** What a policy loss sees of one sequence; all arrays run over its tokens, masked entries are never read. */
export interface PolicyLossInput {
  readonly mask: ArrayLike<number>;
  /** log π_θ under the weights being trained. */
  readonly logProbs: ArrayLike<number>;
  /** log-probabilities in the ratio's denominator. */
  readonly oldLogProbs: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
}

export interface ClipSettings {
  readonly clipLow: number;
  readonly clipHigh: number;
  readonly dualClip: number;
}

/** Token losses of one sequence, before aggregation. Masked entries are 0. */
export interface PolicyLossOutput {
  readonly losses: Float64Array;
  /** Derivative of a token's loss with respect to that token's log π_θ. */
  readonly derivatives: Float64Array;
  /** 1 where the upper or lower clip, or the dual clip, decided the loss. */
  readonly clipped: Uint8Array;
  readonly clippedLower: Uint8Array;
}

export type PolicyLossFunction = (input: PolicyLossInput, settings: ClipSettings) => PolicyLossOutput;

export function emptyOutput(length: number): PolicyLossOutput {
  return {
    losses: new Float64Array(length),
    derivatives: new Float64Array(length),
    clipped: new Uint8Array(length),
    clippedLower: new Uint8Array(length),
  };
}

export function clampLogRatio(logRatio: number): number {
  return Math.min(Math.max(logRatio, -LOG_RATIO_LIMIT), LOG_RATIO_LIMIT);
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
