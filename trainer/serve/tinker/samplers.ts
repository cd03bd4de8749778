import { randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { onAbort } from '../../../shared/closing.ts';
import type { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { type SlotGroup, Slots } from '../../../shared/scheduling/slots.ts';
import {
  type GenerateRequest,
  type Generation,
  MAX_TOP_LOG_PROBS,
  type SamplingSettings,
} from '../../generation/generation.ts';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import { NO_LOGPROB, type SampleResponse, type TopkLogprobs } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';
import type { Fields, SampleFields } from './schemas.ts';

/** An adapter to sample with. */
export interface AdapterWeights {
  /** Name of the weights: equal keys mean equal weights. */
  readonly key: string;
  readonly lora: LoraConfig;
  /**
   * The weights, for a policy with this adapter.
   * @throws ApiError if they no longer exist
   */
  read(): Promise<Float32Array>;
}

/** A checked sampling request. */
export interface SampleTask {
  readonly prompt: Int32Array;
  readonly samples: number;
  /** Seed of the first sample; the others count up from it. */
  readonly seed: number;
  readonly sampling: SamplingSettings;
  readonly promptLogProbs: boolean;
  /** Most probable tokens at each position of the prompt; 0: none. */
  readonly topPromptLogProbs: number;
}

/** Seeds are taken modulo this. */
const SEEDS = 2 ** 31;
/** Fields that the server does not support. */
const UNSUPPORTED = [
  'topk_sample_logprobs',
  'target_prompt_logprobs',
  'prompt_alt_tokens_k',
  'prompt_logprobs_last_n',
  'record_stability_info',
];

/**
 * Checks a request and translates it.
 * @param endings tokens that end a response unless the request names others
 * @throws ApiError 400 naming the field
 */
export function sampleTask(
  body: Fields<typeof SampleFields>,
  { maxSequenceLength: maxLength, vocabularySize }: LocalPolicy,
  endings: readonly number[],
): SampleTask {
  const { prompt, sampling_params: given, num_samples, prompt_logprobs, topk_prompt_logprobs: top } = body;
  const unsupported = UNSUPPORTED.find(field => (body as Record<string, unknown>)[field]);
  if (unsupported) throw badRequest(`${unsupported} is not supported: leave it out`, unsupported);
  const tokens = prompt.chunks.flatMap(({ type, tokens: own }, i) => {
    if (own !== undefined && (type ?? 'encoded_text') === 'encoded_text') return own;
    const fault = `prompt.chunks[${i}] is ${JSON.stringify(type)}`;
    throw badRequest(`${fault}; only encoded_text is sampled from`, 'prompt');
  });
  if (tokens.length === 0 || tokens.length >= maxLength) {
    throw badRequest(`the prompt has ${tokens.length} tokens; it must have 1 to ${maxLength - 1}`, 'prompt');
  }
  const bad = tokens.find(id => id >= vocabularySize);
  if (bad !== undefined) {
    throw badRequest(`the prompt has token ${bad}; the vocabulary has ${vocabularySize}`, 'prompt');
  }
  if ((top ?? 0) > MAX_TOP_LOG_PROBS) {
    const fault = `topk_prompt_logprobs is ${top}; it can be 0 to ${MAX_TOP_LOG_PROBS}`;
    throw badRequest(fault, 'topk_prompt_logprobs');
  }
  const { stop, seed, max_tokens, temperature, top_k, top_p } = given;
  const stops = typeof stop === 'string' ? [stop] : stop;
  const stopStrings = stops?.filter(one => typeof one === 'string');
  return {
    prompt: Int32Array.from(tokens),
    samples: num_samples ?? 1,
    seed: seed == null ? randomInt(SEEDS) : ((seed % SEEDS) + SEEDS) % SEEDS,
    sampling: {
      temperature: temperature ?? 1,
      topK: Math.max(top_k ?? 0, 0),
      topP: top_p ?? 1,
      maxNewTokens: Math.min(max_tokens ?? maxLength, maxLength),
      stopTokenIds: stops ? stops.filter(one => typeof one === 'number') : endings,
      ...(stopStrings?.length ? { stopStrings } : {}),
    },
    promptLogProbs: prompt_logprobs === true,
    topPromptLogProbs: top ?? 0,
  };
}

/** A client of sampling. Keys take turns, and the clients of a key among each other. */
export interface SamplingClient {
  /** Hash of its key. */
  readonly owner: string;
  /** `turns`: requests of the key for policies, in order. */
  readonly limits: { readonly turns: SerialQueue };
}

/** Prefixes of a prompt that are computed together for their most probable next tokens. */
const PREFIXES_AT_ONCE = 64;
const ONE_TOKEN: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] };
/** Sequences of the server's other clients have smaller numbers. */
const FIRST_SEQUENCE = 2 ** 32;

type Generate = (
  prompt: Int32Array,
  sampling: SamplingSettings,
  more: Partial<GenerateRequest>,
) => Promise<Generation>;

/**
 * A policy that samples with its present adapter. So many sequences are in progress that thousands of one client keep no
 * other one waiting for their end.
 */
class SamplingPolicy {
  /** Null: it samples without an adapter. */
  readonly lora: LoraConfig | null;
  readonly policy: Promise<LocalPolicy>;
  /** Hash of the key that uses it now. */
  owner = '';
  /** Name of its weights. */
  key = '';
  /** Requests in progress. */
  open = 0;
  readonly #slots: Slots;
  readonly #turns = new WeakMap<SamplingClient, SlotGroup>();
  #nextSequence = FIRST_SEQUENCE;

  constructor(lora: LoraConfig | null, policy: Promise<LocalPolicy>, maxSequences: number) {
    this.lora = lora;
    this.policy = policy;
    this.#slots = new Slots({ most: maxSequences });
  }

  async sample(client: SamplingClient, task: SampleTask, signal: AbortSignal): Promise<SampleResponse> {
    const policy = await this.policy;
    const turns = this.#turns.get(client) ?? this.#slots.group(client.owner);
    this.#turns.set(client, turns);
    signal.throwIfAborted();
    const generate: Generate = async (append, sampling, more) => {
      const sequenceId = this.#nextSequence++;
      const release = () => policy.release(sequenceId);
      using _abort = onAbort(signal, release);
      await turns.take();
      try {
        signal.throwIfAborted();
        return await policy.generate({ sequenceId, append, sampling, seed: 0, ...more });
      } finally {
        turns.release();
        release();
      }
    };
    const { prompt, samples, seed, sampling, topPromptLogProbs: top } = task;
    const each = Array.from({ length: samples }, (_, i) => generate(prompt, sampling, { seed: seed + i }));
    const generations = await Promise.all(each);
    const isPlain = sampling.temperature === 1 && sampling.topK === 0 && sampling.topP === 1;
    const whole = generations.map(({ tokenIds }) => Int32Array.from([...prompt, ...tokenIds]));
    const scores = isPlain ? [] : await scoresFrom(policy, prompt.length, whole);
    const scored = task.promptLogProbs ? (await scoresFrom(policy, 1, [prompt]))[0] : null;
    return {
      sequences: generations.map(({ tokenIds: tokens, logProbs, finishReason }, i) => ({
        stopReason: finishReason === 'stop' ? 'stop' : 'length',
        tokens,
        logprobs: scores[i] ?? logProbs,
      })),
      promptLogprobs: scored && Float32Array.from([NaN, ...scored]),
      topkPromptLogprobs: top > 0 ? await topOfPrompt(prompt, top, generate) : null,
    };
  }
}

/** log p of the tokens after the first `from` of each sequence, under the full distribution of temperature 1. */
async function scoresFrom(policy: LocalPolicy, from: number, sequences: readonly Int32Array[]) {
  const some = sequences.filter(({ length }) => length > from);
  const lossMask = ({ length }: Int32Array) => new Uint8Array(length).fill(1, from);
  const scores = await policy.score(some.map(tokenIds => ({ tokenIds, lossMask: lossMask(tokenIds) })));
  return sequences.map(own => scores[some.indexOf(own)]?.logProbs.slice(from) ?? new Float32Array());
}

/** The `k` most probable tokens after each proper prefix of a prompt. */
async function topOfPrompt(prompt: Int32Array, k: number, generate: Generate): Promise<TopkLogprobs> {
  const { length } = prompt;
  const tokenIds = new Int32Array(length * k);
  const logprobs = new Float32Array(length * k).fill(NO_LOGPROB);
  const after = async (end: number): Promise<void> => {
    const { top } = await generate(prompt.slice(0, end), ONE_TOKEN, { topLogProbs: k });
    tokenIds.set(top![0].tokenIds, end * k);
    logprobs.set(top![0].logProbs, end * k);
  };
  const ends = Array.from({ length: length - 1 }, (_, i) => i + 1);
  for (let i = 0; i < ends.length; i += PREFIXES_AT_ONCE)
    await Promise.all(ends.slice(i, i + PREFIXES_AT_ONCE).map(after));
  return { tokenIds, logprobs, k, length };
}

/** Limits of a pool: policies with adapters, and sequences in progress of each. */
interface PoolLimits {
  readonly maxPolicies: number;
  readonly maxSequences: number;
}

/**
 * Policies that sample from versions of adapters while the adapters are trained. Each has one version at a time; requests
 * take one with their version, or an idle one, in the order that they came. A key leaves one to the others.
 */
export class SamplerPool {
  readonly #base: SamplingPolicy;
  readonly #create: (lora: LoraConfig) => Promise<LocalPolicy>;
  readonly #limits: PoolLimits;
  readonly #policies: SamplingPolicy[] = [];
  /** Requests that wait for an idle policy. */
  readonly #waiting = new Set<{ readonly owner: string; readonly wake: () => void }>();

  /**
   * @param base samples without an adapter
   * @param create opens a policy that generates with an adapter
   */
  constructor(base: LocalPolicy, create: (lora: LoraConfig) => Promise<LocalPolicy>, limits: PoolLimits) {
    this.#base = new SamplingPolicy(null, Promise.resolve(base), limits.maxSequences);
    this.#create = create;
    this.#limits = limits;
  }

  /**
   * Samples and scores.
   * @param weights null: without an adapter
   * @param signal ends it
   */
  async sample(
    client: SamplingClient,
    weights: AdapterWeights | null,
    task: SampleTask,
    signal: AbortSignal,
  ): Promise<SampleResponse> {
    if (weights === null) return this.#base.sample(client, task, signal);
    const policy = await client.limits.turns.run(() => this.#acquire(client.owner, weights, signal));
    try {
      return await policy.sample(client, task, signal);
    } finally {
      this.#leave(policy);
    }
  }

  /** Ends the policies, when no client samples any more. */
  async close(): Promise<void> {
    await Promise.all(this.#policies.map(async ({ policy }) => (await policy).close()));
  }

  #leave(policy: SamplingPolicy): void {
    policy.open--;
    if (policy.open === 0) for (const { wake } of this.#waiting) wake();
  }

  /** A policy with these weights, marked as in use. */
  async #acquire(
    owner: string,
    { key, lora, read }: AdapterWeights,
    signal: AbortSignal,
  ): Promise<SamplingPolicy> {
    signal.throwIfAborted();
    const ready = this.#policies.find(policy => policy.key === key);
    const others = [...this.#waiting].some(other => other.owner !== owner && this.#mayHave(other.owner));
    if (ready && !others) {
      ready.open++;
      return ready;
    }
    const flat = await read();
    const policy = await this.#emptyPolicy(owner, lora, signal);
    try {
      await (await policy.policy).takeWeights(flat);
      policy.key = key;
      return policy;
    } catch (error) {
      this.#leave(policy);
      throw error;
    }
  }

  /** An idle policy with adapters of a shape, marked as in use. */
  async #emptyPolicy(owner: string, lora: LoraConfig, signal: AbortSignal): Promise<SamplingPolicy> {
    for (;;) {
      signal.throwIfAborted();
      const policy = this.#mayHave(owner) ? this.#idlePolicy(lora) : undefined;
      if (policy) return Object.assign(policy, { owner, key: '', open: 1 });
      const { promise, resolve: wake, reject } = Promise.withResolvers<void>();
      const waiting = { owner, wake };
      this.#waiting.add(waiting);
      using _abort = onAbort(signal, () => reject(signal.reason));
      await promise.finally(() => this.#waiting.delete(waiting));
    }
  }

  #mayHave(owner: string): boolean {
    const own = this.#policies.filter(policy => policy.open > 0 && policy.owner === owner).length;
    return own < Math.max(1, this.#limits.maxPolicies - 1);
  }

  /** An idle policy: one of this shape, or a new one, for which an idle one of another shape is closed if need be. */
  #idlePolicy(lora: LoraConfig): SamplingPolicy | undefined {
    const idle = this.#policies.filter(({ open }) => open === 0);
    const fitting = idle.find(policy => isDeepStrictEqual(policy.lora, lora));
    if (fitting) return fitting;
    const { maxPolicies, maxSequences } = this.#limits;
    const isFull = this.#policies.length >= maxPolicies;
    if (isFull && idle.length === 0) return undefined;
    const remove = (gone: SamplingPolicy) => this.#policies.splice(this.#policies.indexOf(gone), 1)[0];
    const gone = isFull ? remove(idle[0]) : undefined;
    const open = async () => {
      await (await gone?.policy)?.close();
      return this.#create(lora);
    };
    const policy = new SamplingPolicy(lora, open(), maxSequences);
    this.#policies.push(policy);
    policy.policy.catch(() => remove(policy));
    return policy;
  }
}
