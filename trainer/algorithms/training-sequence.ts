/** One trajectory as the update sees it. All arrays have the length of `tokenIds`. */
export interface TrainingSequence {
  readonly tokenIds: Int32Array;
  /** Loss mask: 1 on trained tokens, which the policy sampled. */
  readonly lossMask: Uint8Array;
  /** Tokens to predict at each position instead of `tokenIds`; the model then only reads `tokenIds`. */
  readonly targets?: Int32Array;
  /** Behavior log-probabilities. */
  readonly logProbs: Float32Array;
  readonly advantages: Float32Array;
  /** Targets of the value head; absent without one. */
  readonly returns?: Float32Array;
  readonly values?: Float32Array;
  /** log π_ref, where a KL term is on. */
  readonly referenceLogProbs?: Float32Array;
  /** log π_prox, for the decoupled loss. */
  readonly proximalLogProbs?: Float32Array;
  /** 1 on tokens that get the entropy bonus; absent: same as `lossMask`. */
  readonly entropyMask?: Uint8Array;
  /** Its part in a pair, and Σ log π − log π_ref over the tokens of the other one; of preference losses. */
  readonly preference?: { readonly chosen: boolean; readonly partnerLogRatio: number };
  /**
   * Weights per token of the loss's three streams. Absent: 1 on trained tokens in the policy gradient and in the KL; in the
   * cross-entropy 1 on trained tokens where it is the whole loss, else 0. Cross-entropy may weigh observed tokens, too.
   */
  readonly policyGradientWeights?: Float32Array;
  readonly crossEntropyWeights?: Float32Array;
  readonly klWeights?: Float32Array;
  /** 1 on tokens that a loss treats separately in this optimizer step. */
  readonly selected?: Uint8Array;
  /** Weight of the whole sequence in the loss; 1 when absent. */
  readonly weight?: number;
  /** Grammar the trained tokens were sampled under: the loss takes the same mask. Each run of ones in the loss mask is one response. */
  readonly grammar?: string;
  /** In place of a grammar: the tokens that could have been sampled, by the position of a trained token. */
  readonly allowed?: ReadonlyMap<number, Int32Array>;
}

/** Number of trained tokens. */
export function countOnes(lossMask: ArrayLike<number>): number {
  let ones = 0;
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t]) ones++;
  return ones;
}
