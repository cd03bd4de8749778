import type { Aggregation } from './settings.ts';

/**
 * Numbers that the losses of one optimizer step are averaged over. They are counted over the whole step before it is
 * split among micro-batches and workers, so the split changes nothing.
 */
export interface LossCounts {
  /** Trained tokens. */
  readonly tokens: number;
  /** Sequences with at least one trained token. */
  readonly sequences: number;
  /** Tokens with an entropy bonus, and sequences with at least one of them. */
  readonly entropyTokens: number;
  readonly entropySequences: number;
  /** Counts of the streams with weights per token, where a sequence has them; other streams are averaged over the trained tokens. */
  readonly streams?: Readonly<Partial<Record<LossStream, StreamCounts>>>;
}

/** Parts of the policy's loss with weights per token. */
export type LossStream = keyof typeof STREAM_WEIGHTS;
/** The sequence's array with each stream's weights. */
const STREAM_WEIGHTS = {
  policy: 'policyGradientWeights',
  crossEntropy: 'crossEntropyWeights',
  kl: 'klWeights',
} as const;

/** Tokens with a weight in a stream, and sequences with at least one; the size of the weights does not matter. */
interface StreamCounts {
  readonly tokens: number;
  readonly sequences: number;
}

/** Part of a training sequence that is counted. */
export interface CountedSequence {
  readonly lossMask: ArrayLike<number>;
  readonly entropyMask?: ArrayLike<number>;
  readonly weight?: number;
  readonly policyGradientWeights?: ArrayLike<number>;
  readonly crossEntropyWeights?: ArrayLike<number>;
  readonly klWeights?: ArrayLike<number>;
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
  const streams = streamCounts(sequences);
  return { tokens, sequences: counted, entropyTokens, entropySequences, ...(streams && { streams }) };
}

/**
 * Weight of a token in a stream; a stream without weights takes all trained tokens equally. Observed tokens only have
 * cross-entropy.
 */
export function streamWeight(sequence: CountedSequence, stream: LossStream, t: number): number {
  const weights = sequence[STREAM_WEIGHTS[stream]];
  if (weights === undefined) return sequence.lossMask[t] ? 1 : 0;
  return sequence.lossMask[t] || stream === 'crossEntropy' ? weights[t] : 0;
}

/** Number of tokens of a sequence with a weight in a stream. */
export function countStream(sequence: CountedSequence, stream: LossStream): number {
  let count = 0;
  for (let t = 0; t < sequence.lossMask.length; t++) if (streamWeight(sequence, stream, t) !== 0) count++;
  return count;
}

function streamCounts(sequences: readonly CountedSequence[]): LossCounts['streams'] {
  const counts = (Object.keys(STREAM_WEIGHTS) as LossStream[]).flatMap(stream => {
    if (sequences.every(sequence => sequence[STREAM_WEIGHTS[stream]] === undefined)) return [];
    const own = sequences.filter(({ weight }) => weight !== 0).map(sequence => countStream(sequence, stream));
    const tokens = own.reduce((a, b) => a + b, 0);
    return [[stream, { tokens, sequences: own.filter(count => count > 0).length }]];
  });
  return counts.length === 0 ? undefined : Object.fromEntries(counts);
}

/** Tokens that the model predicts for the loss: the trained ones, and those with a weight in the cross-entropy. */
export function predictedTokens(sequence: {
  readonly lossMask: Uint8Array;
  readonly crossEntropyWeights?: ArrayLike<number>;
}): Uint8Array {
  const { lossMask, crossEntropyWeights } = sequence;
  if (crossEntropyWeights === undefined) return lossMask;
  return lossMask.map((on, t) => (on || crossEntropyWeights[t] !== 0 ? 1 : 0));
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
