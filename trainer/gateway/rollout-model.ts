import type { Generation, SamplingDistribution, StreamedToken } from '../generation/generation.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { textAfterResponse } from '../prompts/chat.ts';
import { mixSeed } from '../rollout/seeds.ts';
import { badRequest } from '../serve/openai/errors.ts';
import {
  type LanguageModel,
  PrefixCache,
  type SequencePolicy,
  type TokenRequest,
} from '../serve/openai/language-model.ts';
import type { PromptEncoder } from '../serve/openai/prompt-encoder.ts';
import type { Rollout } from './rollout.ts';

/** The policy's model name for programs; they may ask for any name. */
export const MODEL_NAME = 'policy';
/** Sequences of one rollout that keep their cache for continuation. */
const KEPT_SEQUENCES = 2;
/** First sequence number, above those that others open in the same policy. */
let sequences = 2 ** 40;

/** The policy that answers programs. */
export interface GatewayPolicy extends SequencePolicy {
  readonly maxSequenceLength: number;
  readonly vocabularySize: number;
  release(sequenceId: number): void;
}

export interface RolloutSampling extends SamplingDistribution {
  /** Most tokens of one response. */
  readonly responseLength: number;
  readonly stopStrings: readonly string[];
  readonly seed: number;
}

/**
 * The policy as one rollout's model. It keeps prompts, sampled ids, log-probabilities and versions of every call.
 * Tokens are sampled with the run's settings, not the program's temperature, because the loss assumes that
 * distribution.
 */
export class RolloutModel implements LanguageModel {
  readonly name = MODEL_NAME;
  readonly fingerprint = MODEL_NAME;
  readonly tokenizer: Tokenizer;
  readonly encoder: PromptEncoder;
  readonly stopTokenIds: readonly number[];
  readonly #policy: GatewayPolicy;
  readonly #rollout: Rollout;
  readonly #sampling: RolloutSampling;
  readonly #kept: PrefixCache;

  constructor(
    policy: GatewayPolicy,
    tokenizer: Tokenizer,
    encoder: PromptEncoder,
    rollout: Rollout,
    sampling: RolloutSampling,
  ) {
    this.tokenizer = tokenizer;
    this.encoder = encoder;
    this.stopTokenIds = endingTokens(tokenizer);
    this.#policy = policy;
    this.#rollout = rollout;
    this.#sampling = sampling;
    this.#kept = new PrefixCache(KEPT_SEQUENCES, id => policy.release(id));
  }

  get maxSequenceLength(): number {
    return this.#policy.maxSequenceLength;
  }

  get vocabularySize(): number {
    return this.#policy.vocabularySize;
  }

  async generate(
    { promptIds, sampling, grammar, topLogProbs }: TokenRequest,
    signal: AbortSignal,
    watch?: (token: StreamedToken) => void,
  ): Promise<Generation> {
    signal.throwIfAborted();
    if (grammar) {
      throw badRequest('responses of a policy that is trained cannot be constrained', 'response_format');
    }
    const { responseLength, stopStrings, seed, ...distribution } = this.#sampling;
    const maxNewTokens = Math.min(sampling.maxNewTokens, responseLength);
    const number = this.#begin(promptIds.length, maxNewTokens);
    const { plan, member } = this.#rollout;
    const request: TokenRequest = {
      promptIds,
      sampling: {
        ...distribution,
        maxNewTokens,
        stopTokenIds: sampling.stopTokenIds,
        stopStrings: [...stopStrings, ...(sampling.stopStrings ?? [])],
      },
      seed: mixSeed(seed, plan.groupId, plan.seed, member, number),
      ...(topLogProbs === undefined ? {} : { topLogProbs }),
    };
    const made = await this.#kept.generate(this.#policy, request, () => sequences++, signal, watch);
    const { generation, sequenceId, tokens } = made;
    const { tokenIds, logProbs, versions, values, finishReason } = generation;
    const text = this.tokenizer.decode(tokenIds, { skipSpecial: true });
    const call = { promptIds, tokenIds, logProbs, versions, finishReason, text };
    this.#rollout.record(values ? { ...call, values } : call, maxNewTokens);
    if (this.#rollout.isOpen) this.#kept.keep(sequenceId, tokens);
    else this.#policy.release(sequenceId);
    return generation;
  }

  /** Frees the policy's memory of the rollout. */
  close(): void {
    this.#kept.clear();
  }

  #begin(promptTokens: number, maxNewTokens: number): number {
    try {
      return this.#rollout.beginCall(promptTokens, maxNewTokens);
    } catch (error) {
      throw badRequest((error as Error).message);
    }
  }
}

/** Tokens that end a response: the end of text, and what the chat template writes after one. */
function endingTokens(tokenizer: Tokenizer): number[] {
  const { chatTemplate, eosTokenId } = tokenizer;
  const closing = chatTemplate ? tokenizer.encode(textAfterResponse(chatTemplate)).slice(0, 1) : [];
  return [...new Set([eosTokenId, ...closing].filter(id => id !== undefined))];
}
