import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Generation, Generator, SamplingDistribution, StreamedToken } from '../generation/generation.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { textAfterResponse } from '../prompts/chat.ts';
import type { EpisodeSample } from '../rollout/episode.ts';
import { ProgramFault } from '../rollout/episode-agent.ts';
import { mixSeed } from '../rollout/seeds.ts';
import type { SessionAddress } from '../rollout/session-requests.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import { TokenBuffer } from '../rollout/token-buffer.ts';
import { badRequest } from '../serve/openai/errors.ts';
import { type LanguageModel, PrefixCache, type TokenRequest } from '../serve/openai/language-model.ts';
import type { PromptEncoder } from '../serve/openai/prompt-encoder.ts';

const KEY_BYTES = 24;

/** A program's task, in the variable `RAGEN_TASK` as JSON. */
export interface ProgramTask {
  readonly env_id: string;
  readonly instruction: string;
  /** The first observation. */
  readonly observation: string;
  /** Names of the actions; absent where they are free text. */
  readonly actions?: readonly string[];
  /** Format of an action where it is free text. */
  readonly action_format?: string;
  readonly max_steps: number;
}

/** Limits on the requests of one rollout. */
export interface RolloutLimits {
  readonly maxCalls: number;
  /** Prompt and response tokens of all calls together. */
  readonly maxTokens: number;
}

/** One program's attempt at one episode: the keys that authorize it, and the policy's answers. */
export class Rollout {
  readonly id = randomBytes(9).toString('base64url');
  /** Valid for the model of this rollout only. */
  readonly apiKey = `sk-ragen-${randomBytes(KEY_BYTES).toString('base64url')}`;
  /** Valid for the session of this rollout only. */
  readonly sessionToken = randomBytes(KEY_BYTES).toString('base64url');
  readonly plan: GroupPlan;
  readonly member: number;
  readonly session: SessionAddress;
  readonly task: ProgramTask;
  readonly calls: ModelCall[] = [];
  /** For each step of the session, from 1: the number of calls answered before it. */
  readonly callsBefore = new Map<number, number>();
  /** A verifier's reward; undefined until then. */
  reward: number | undefined;
  readonly #limits: RolloutLimits;
  readonly #ended = Promise.withResolvers<void>();
  #open = true;
  #tokens = 0;
  #begun = 0;

  constructor(
    plan: GroupPlan,
    member: number,
    session: SessionAddress,
    task: ProgramTask,
    limits: RolloutLimits,
  ) {
    this.plan = plan;
    this.member = member;
    this.session = session;
    this.task = task;
    this.#limits = limits;
    // A fault may come before anything awaits it.
    this.#ended.promise.catch(() => {});
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Resolves when the program is done; rejects with the ProgramFault that ended it. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Accepts no more requests. Only the first end counts. */
  end(fault?: ProgramFault): void {
    if (!this.#open) return;
    this.#open = false;
    if (fault) this.#ended.reject(fault);
    else this.#ended.resolve();
  }

  /**
   * Counts a call that begins.
   * @returns its number, from 0
   * @throws ProgramFault for one call too many, which ends the rollout
   */
  beginCall(promptTokens: number, maxNewTokens: number): number {
    const { maxCalls, maxTokens } = this.#limits;
    this.#tokens += promptTokens + maxNewTokens;
    if (this.#begun >= maxCalls) this.#flood(`${maxCalls} calls (rollout.agent.max_calls)`);
    if (this.#tokens > maxTokens) this.#flood(`${maxTokens} tokens (rollout.agent.max_tokens)`);
    return this.#begun++;
  }

  /** Keeps an answer. */
  record(call: ModelCall, maxNewTokens: number): void {
    this.#tokens -= maxNewTokens - call.tokenIds.length;
    if (this.#open) this.calls.push(call);
  }

  /** Sets the number of steps of the session. */
  stepped(step: number): void {
    if (!this.callsBefore.has(step)) this.callsBefore.set(step, this.calls.length);
  }

  #flood(limit: string): never {
    const fault = new ProgramFault(`it asked for more than ${limit} in one episode`);
    this.end(fault);
    throw fault;
  }
}

/** True if a request's `Authorization` has this key. */
export function holdsKey(authorization: string | undefined, key: string): boolean {
  const given = /^bearer +([^ ].*)$/i.exec(authorization ?? '')?.[1].trim() ?? '';
  return timingSafeEqual(hash('sha256', given, 'buffer'), hash('sha256', key, 'buffer'));
}

/** One answer of the policy to a program, as sampled. */
export interface ModelCall {
  readonly promptIds: readonly number[];
  readonly tokenIds: Int32Array;
  /** Aligned with `tokenIds`, like the two below. */
  readonly logProbs: Float32Array;
  readonly versions: Int32Array;
  readonly values?: Float32Array;
  readonly finishReason: 'stop' | 'length' | 'context';
  /** The response as text. */
  readonly text: string;
}

/** Position of a call's sampled tokens. */
interface CallPlace {
  readonly sample: number;
  readonly tokens: readonly [start: number, end: number];
}

/** The calls of an episode as token sequences to train on. */
export interface MergedCalls {
  readonly samples: readonly EpisodeSample[];
  /** For each call, in order. */
  readonly places: readonly CallPlace[];
  /** Number of calls that continued an earlier sequence. */
  readonly merges: number;
  /**
   * Tokens of earlier responses that a later prompt encodes differently, so that a new sequence had to begin: from the
   * first different id to the end of the earlier sequence.
   */
  readonly retokenized: number;
}

/** A sequence that calls may continue. */
interface Sequence {
  readonly buffer: TokenBuffer;
  ids: number[];
  /** Start of the last response. */
  responseStart: number;
}

/**
 * Merges calls into sequences: a call continues an earlier sequence exactly where all ids of that sequence, prompts and
 * responses, begin the call's prompt. Otherwise a new sequence begins. If several fit, it is the longest.
 */
export function mergeCalls(calls: readonly ModelCall[]): MergedCalls {
  const sequences: Sequence[] = [];
  const places: CallPlace[] = [];
  let merges = 0;
  let retokenized = 0;
  for (const call of calls) {
    const { promptIds, tokenIds } = call;
    let index = -1;
    let parted = 0;
    sequences.forEach(({ ids, responseStart }, i) => {
      const common = commonPrefix(ids, promptIds);
      if (common === ids.length && (index < 0 || ids.length > sequences[index].ids.length)) index = i;
      else if (common > responseStart) parted = Math.max(parted, ids.length - common);
    });
    if (index < 0) {
      retokenized += parted;
      index = sequences.push({ buffer: new TokenBuffer(), ids: [], responseStart: 0 }) - 1;
    } else merges++;
    const sequence = sequences[index];
    sequence.buffer.addContext(promptIds.slice(sequence.ids.length));
    const tokens = sequence.buffer.addSampled(call);
    sequence.responseStart = tokens[0];
    sequence.ids = [...promptIds, ...tokenIds];
    places.push({ sample: index, tokens });
  }
  return { samples: sequences.map(({ buffer }) => buffer.sample()), places, merges, retokenized };
}

function commonPrefix(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const most = Math.min(a.length, b.length);
  let i = 0;
  while (i < most && a[i] === b[i]) i++;
  return i;
}

/** The policy's model name for programs; they may ask for any name. */
export const MODEL_NAME = 'policy';
/** Sequences of one rollout that keep their cache for continuation. */
const KEPT_SEQUENCES = 2;
/** First sequence number, above those that others open in the same policy. */
let sequences = 2 ** 40;

/** The policy that answers programs. */
export interface GatewayPolicy extends Generator {
  readonly maxSequenceLength: number;
  readonly vocabularySize: number;
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
