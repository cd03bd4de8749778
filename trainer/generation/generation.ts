import type { SparseGrammar, TextGrammar, TokenGrammar } from './grammar.ts';

/**
 * Changes to logits before the temperature, as in transformers and vLLM; absent ones have no effect. Order: bias,
 * repetition, frequency and presence penalty, bad words.
 */
export interface LogitSettings {
  /** Above 0; 1 turns it off. Divides positive logits of tokens in the prompt or response, multiplies negative ones. */
  readonly repetitionPenalty?: number;
  /** -2 to 2. Subtracted from the logits of tokens in the response; the prompt does not count. */
  readonly presencePenalty?: number;
  /** -2 to 2. Subtracted from a logit once for each occurrence of its token in the response. */
  readonly frequencyPenalty?: number;
  /** Added to logits, by token id; -100 to 100. */
  readonly logitBias?: Readonly<Record<string, number>>;
  /** Texts that the response must not contain: the last token of each is never sampled after the others. */
  readonly badWords?: readonly string[];
}

/** The distribution that tokens are sampled from; log-probabilities refer to it. */
export interface SamplingDistribution extends LogitSettings {
  /** 0 is greedy. */
  readonly temperature: number;
  /** 0 turns it off. */
  readonly topK: number;
  /** 1 turns it off. */
  readonly topP: number;
  /** Tokens less probable than this share of the most probable one are not sampled; 0 or absent turns it off. */
  readonly minP?: number;
}

export interface SamplingSettings extends SamplingDistribution {
  readonly maxNewTokens: number;
  /** Sampling ends after any of these; the token is kept. */
  readonly stopTokenIds: readonly number[];
  /** Sampling ends once the response contains one of these, across tokens too; the response keeps it. */
  readonly stopStrings?: readonly string[];
}

export interface GenerateRequest {
  /** Caller's name for the sequence; the first request under an id opens it. */
  readonly sequenceId: number;
  /** Tokens to append before sampling: first the whole prompt, later only new tokens. */
  readonly append: ArrayLike<number>;
  readonly sampling: SamplingSettings;
  /** Seeds this request's samples: the result does not depend on the rest of the batch. */
  readonly seed: number;
  /** Name of a grammar given to the policy at start, or a grammar; only tokens it allows can be sampled. */
  readonly grammar?: string | TokenGrammar | SparseGrammar | TextGrammar;
  /** Most probable tokens to report at each position, 0 to {@link MAX_TOP_LOG_PROBS}; absent: none. */
  readonly topLogProbs?: number;
}

export const MAX_TOP_LOG_PROBS = 20;

/** The most probable tokens of a position, the most probable first. */
export interface TopLogProbs {
  /** log-probability of the sampled token under its distribution; at temperature 0 under that of temperature 1. */
  readonly logProb: number;
  readonly tokenIds: Int32Array;
  /** Under the same distribution as `logProb`, same length as `tokenIds`. */
  readonly logProbs: Float32Array;
}

/** A token, reported when it is sampled. */
export interface StreamedToken {
  readonly tokenId: number;
  readonly logProb: number;
  readonly version: number;
  readonly top?: TopLogProbs;
}

export interface Generation {
  readonly tokenIds: Int32Array;
  /** log π of each sampled token, same length. */
  readonly logProbs: Float32Array;
  /** Value head's estimate at the state before each token; absent without a value head. */
  readonly values?: Float32Array;
  /** Policy version under which each token was sampled. */
  readonly versions: Int32Array;
  /** Most likely tokens at each position; absent unless requested. */
  readonly top?: readonly TopLogProbs[];
  readonly finishReason: 'stop' | 'length' | 'context';
}

/** Counts since the engine started. */
export interface EngineStatistics {
  ticks: number;
  /** Tokens that went through the model: prefill, decode, and recomputed ones. */
  rows: number;
  sampled: number;
  evictions: number;
  /** Prompt tokens found in the cache (prefix caching). */
  shared: number;
}

/**
 * Sampler of tokens: the policy's own threads, or remote engines. Its inputs and outputs are token ids, which are never
 * made from text again.
 */
export interface Generator {
  /**
   * Appends tokens to a sequence and samples a continuation. Requests of many sequences run batched. The KV cache of a
   * sequence stays until {@link release}, so a turn only costs its own tokens. An evicted cache is recomputed.
   * @param watch called with each token soon after it is sampled, or with all of them at the end
   */
  generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation>;
  /** Forgets a sequence; unknown ids are ignored. */
  release(sequenceId: number): void;
}
