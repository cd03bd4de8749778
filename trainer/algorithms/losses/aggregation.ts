import type { Aggregation } from './settings.ts';

/**
 * How much there is to average over in one optimizer step. Taken over the whole step, before it is cut into
 * micro-batches or handed to workers, so that the cutting changes nothing.
 */
export interface LossCounts {
  /** Trained tokens. */
  readonly tokens: number;
  /** Sequences with at least one trained token. */
  readonly sequences: number;
  /** Tokens whose entropy is rewarded, and sequences with at least one of them. */
  readonly entropyTokens: number;
  readonly entropySequences: number;
}

/** The part of a training sequence that decides what is counted. */
export interface CountedSequence {
  readonly lossMask: ArrayLike<number>;
  readonly entropyMask?: ArrayLike<number>;
  readonly weight?: number;
}

/** Counts tokens and sequences; sequences of weight 0 (padding) count as absent. */
export function countLossTokens(sequences: readonly CountedSequence[]): LossCounts {
  let [tokens, counted, entropyTokens, entropySequences] = [0, 0, 0, 0];
  for (const sequence of sequences) {
    if (sequence.weight === 0) continue;
    const trained = countTrained(sequence.lossMask);
    const rewarded = sequence.entropyMask ? countTrained(sequence.lossMask, sequence.entropyMask) : trained;
    tokens += trained;
    entropyTokens += rewarded;
    if (trained > 0) counted++;
    if (rewarded > 0) entropySequences++;
  }
  return { tokens, sequences: counted, entropyTokens, entropySequences };
}

/** Number of positions where every mask is set. */
export function countTrained(lossMask: ArrayLike<number>, also: ArrayLike<number> = lossMask): number {
  let count = 0;
  for (let t = 0; t < lossMask.length; t++) if (lossMask[t] && also[t]) count++;
  return count;
}

/**
 * Factor of one token's loss in the aggregated loss; the sum of factor × loss over all tokens is the loss.
 *
 * | mode | factor |
 * |---|---|
 * | `token_mean` | 1 / tokens (DAPO, Yu et al., 2025) |
 * | `seq_mean_token_mean` | 1 / (sequences · tokens of the sequence) (GRPO, Shao et al., 2024) |
 * | `seq_mean_token_sum` | 1 / sequences |
 * | `dr_grpo` | 1 / (sequences · L) (Liu et al., 2025); verl's `seq-mean-token-sum-norm` lacks the 1 / sequences |
 *
 * @param tokens trained tokens of the optimizer step
 * @param sequences trained sequences of the optimizer step
 * @param ownTokens trained tokens of this token's sequence
 */
export function tokenFactor(
  aggregation: Aggregation,
  tokens: number,
  sequences: number,
  ownTokens: number,
  maxResponseLength: number,
): number {
  switch (aggregation) {
    case 'token_mean':
      return 1 / tokens;
    case 'seq_mean_token_mean':
      return 1 / (sequences * ownTokens);
    case 'seq_mean_token_sum':
      return 1 / sequences;
    case 'dr_grpo':
      return 1 / (sequences * maxResponseLength);
  }
}
