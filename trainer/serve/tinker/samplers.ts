import { randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { onAbort } from '../../../shared/closing.ts';
import { remembered } from '../../../shared/remembered.ts';
import { type SlotGroup, Slots } from '../../../shared/scheduling/queues.ts';
import {
  type GenerateRequest,
  MAX_TOP_LOG_PROBS,
  type SamplingSettings,
} from '../../generation/generation.ts';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import { NO_LOGPROB, type SampleResponse } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';
import type { Fields, SampleFields } from './bodies.ts';

/** An adapter to sample with. */
export interface AdapterWeights {
  /** Name of the weights: equal keys mean equal weights. */
  readonly key: string;
  readonly lora: LoraConfig;
  /** Loads them into a policy with this adapter. @throws ApiError if they no longer exist */
  load(policy: LocalPolicy): Promise<void>;
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
}

/** Prefixes of a prompt that are computed together for their most probable next tokens. */
const PREFIXES_AT_ONCE = 64;
const ONE_TOKEN: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] };
/** Most tokens that are scored in a turn, unless one sequence has more. */
const MAX_SCORED_TOKENS = 2048;
/** Sequences of the server's other clients have smaller numbers. */
const FIRST_SEQUENCE = 2 ** 32;

/** Share of the sequences in progress that a key leaves to others, which need not wait for the end of its long ones. */
const OTHERS_SHARE = 1 / 16;

/** A policy that samples with its present adapter. */
class SamplingPolicy {
  /** Null: it samples without an adapter. */
  readonly lora: LoraConfig | null;
  readonly policy: Promise<LocalPolicy>;
  /** Name of its weights. */
  key = '';
  isIdle = true;
  readonly #slots: Slots;
  readonly #scoring = new Slots({ most: 1 });
  readonly #turns = new WeakMap<SamplingClient, SlotGroup>();
  #nextSequence = FIRST_SEQUENCE;

  constructor(lora: LoraConfig | null, policy: Promise<LocalPolicy>, maxSequences: number) {
    this.lora = lora;
    this.policy = policy;
    const most = maxSequences - Math.floor(OTHERS_SHARE * maxSequences);
    this.#slots = new Slots({ most: maxSequences, mostOfOwner: () => most });
  }

  async sample(client: SamplingClient, task: SampleTask, signal: AbortSignal): Promise<SampleResponse> {
    const policy = await this.policy;
    const turns = remembered(this.#turns, client, () => this.#slots.group(client.owner));
    signal.throwIfAborted();
    const generate = async (request: Omit<GenerateRequest, 'sequenceId'>) => {
      const sequenceId = this.#nextSequence++;
      const release = () => policy.release(sequenceId);
      using _abort = onAbort(signal, release);
      return turns.run(() => {
        signal.throwIfAborted();
        return policy.generate({ sequenceId, ...request }).finally(release);
      });
    };
    const { prompt, samples, seed: first, sampling, topPromptLogProbs: k } = task;
    const seeds = Array.from({ length: samples }, (_, i) => first + i);
    const generations = await Promise.all(seeds.map(seed => generate({ append: prompt, sampling, seed })));
    const isPlain = sampling.temperature === 1 && sampling.topK === 0 && sampling.topP === 1;
    const whole = generations.map(({ tokenIds }) => Int32Array.from([...prompt, ...tokenIds]));
    const score = (from: number, sequences: readonly Int32Array[]) =>
      scoresFrom(policy, from, sequences, work =>
        this.#scoring.group(client.owner).run(async () => {
          signal.throwIfAborted();
          return work();
        }),
      );
    const scores = isPlain ? [] : await score(prompt.length, whole);
    const [scored] = task.promptLogProbs ? await score(1, [prompt]) : [];
    const { length } = prompt;
    const top = { tokenIds: new Int32Array(length * k), logprobs: new Float32Array(length * k), k, length };
    top.logprobs.fill(NO_LOGPROB);
    // The most probable tokens after each proper prefix of the prompt.
    for (let end = 1; k > 0 && end < length; end += PREFIXES_AT_ONCE) {
      const ends = Array.from({ length: Math.min(PREFIXES_AT_ONCE, length - end) }, (_, i) => end + i);
      const after = async (at: number) => {
        const request = { append: prompt.slice(0, at), sampling: ONE_TOKEN, seed: 0, topLogProbs: k };
        const { tokenIds, logProbs } = (await generate(request)).top![0];
        top.tokenIds.set(tokenIds, at * k);
        top.logprobs.set(logProbs, at * k);
      };
      await Promise.all(ends.map(after));
    }
    return {
      sequences: generations.map(({ tokenIds: tokens, logProbs, finishReason }, i) => ({
        stopReason: finishReason === 'stop' ? 'stop' : 'length',
        tokens,
        logprobs: scores[i] ?? logProbs,
      })),
      promptLogprobs: scored ? Float32Array.from([NaN, ...scored]) : null,
      topkPromptLogprobs: k > 0 ? top : null,
    };
  }
}

/**
 * log p of the tokens after the first `from` of each sequence, under the full distribution of temperature 1.
 * @param inTurn does the work when its client has a turn: each time it is of few tokens, as nothing is sampled meanwhile
 */
async function scoresFrom(
  policy: LocalPolicy,
  from: number,
  sequences: readonly Int32Array[],
  inTurn: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<Float32Array[]> {
  const scored = new Map<Int32Array, Float32Array>();
  const rest = sequences.filter(({ length }) => length > from);
  while (rest.length > 0) {
    let count = 1;
    let tokens = rest[0].length;
    while (count < rest.length && tokens + rest[count].length <= MAX_SCORED_TOKENS)
      tokens += rest[count++].length;
    const some = rest.splice(0, count);
    const lossMask = ({ length }: Int32Array) => new Uint8Array(length).fill(1, from);
    const requests = some.map(tokenIds => ({ tokenIds, lossMask: lossMask(tokenIds) }));
    const scores = await inTurn(() => policy.score(requests));
    for (const [i, own] of some.entries()) scored.set(own, scores[i].logProbs.slice(from));
  }
  return sequences.map(own => scored.get(own) ?? new Float32Array());
}

/** Limits of a pool: policies with adapters, and sequences in progress of each. */
interface PoolLimits {
  readonly maxPolicies: number;
  readonly maxSequences: number;
}

/** Requests that sample with the same weights, in one policy. */
interface Lease {
  /** Resolves when the policy has the weights. */
  readonly policy: Promise<SamplingPolicy>;
  readonly end: () => void;
  users: number;
  /** False while it waits for a policy. */
  isGranted: boolean;
}

/**
 * Policies that sample from versions of adapters while the adapters are trained. Each has one version at a time. Requests
 * join those with their version unless another one waits for a policy. Keys take turns, and a key leaves one to the others.
 */
export class SamplerPool {
  readonly #base: SamplingPolicy;
  readonly #create: (lora: LoraConfig) => Promise<LocalPolicy>;
  readonly #limits: PoolLimits;
  readonly #slots: Slots;
  readonly #policies: SamplingPolicy[] = [];
  /** The newest by name of weights. */
  readonly #leases = new Map<string, Lease>();

  /** @param base samples without an adapter @param create opens a policy that generates with an adapter */
  constructor(base: LocalPolicy, create: (lora: LoraConfig) => Promise<LocalPolicy>, limits: PoolLimits) {
    this.#base = new SamplingPolicy(null, Promise.resolve(base), limits.maxSequences);
    this.#create = create;
    this.#limits = limits;
    const most = limits.maxPolicies;
    this.#slots = new Slots({ most, mostOfOwner: () => Math.max(1, most - 1) });
  }

  /** Samples and scores. @param weights null: without an adapter @param signal ends it */
  async sample(
    client: SamplingClient,
    weights: AdapterWeights | null,
    task: SampleTask,
    signal: AbortSignal,
  ): Promise<SampleResponse> {
    if (weights === null) return this.#base.sample(client, task, signal);
    signal.throwIfAborted();
    const known = this.#leases.get(weights.key);
    const canJoin = known && !(known.isGranted && this.#slots.isWanted(client.owner));
    const lease = canJoin ? known : this.#lease(client.owner, weights);
    lease.users++;
    const aborted = Promise.withResolvers<never>();
    using _abort = onAbort(signal, () => aborted.reject(signal.reason));
    try {
      const policy = await Promise.race([lease.policy, aborted.promise]);
      return await policy.sample(client, task, signal);
    } finally {
      lease.users--;
      if (lease.users === 0) lease.end();
    }
  }

  /** Ends the policies, when no client samples any more. */
  async close(): Promise<void> {
    await Promise.all(this.#policies.map(async ({ policy }) => (await policy).close()));
  }

  #lease(owner: string, { key, lora, load }: AdapterWeights): Lease {
    const { promise, resolve, reject } = Promise.withResolvers<SamplingPolicy>();
    const unused = Promise.withResolvers<void>();
    const end = () => {
      unused.resolve();
      if (this.#leases.get(key) === lease) this.#leases.delete(key);
    };
    const lease: Lease = { policy: promise, end, users: 0, isGranted: false };
    this.#leases.set(key, lease);
    void this.#slots.group(owner).run(async () => {
      lease.isGranted = true;
      if (lease.users === 0) return;
      const policy = this.#idlePolicy(key, lora);
      policy.isIdle = false;
      try {
        if (policy.key !== key) {
          policy.key = '';
          await load(await policy.policy);
          policy.key = key;
        }
        resolve(policy);
      } catch (error) {
        reject(error);
      }
      await unused.promise;
      policy.isIdle = true;
    });
    return lease;
  }

  /** An idle policy: with the weights, with adapters of their shape, or a new one, in place of another one if need be. */
  #idlePolicy(key: string, lora: LoraConfig): SamplingPolicy {
    const { maxPolicies, maxSequences } = this.#limits;
    const idle = this.#policies.filter(({ isIdle }) => isIdle);
    const loaded = idle.find(policy => policy.key === key);
    const fitting = loaded ?? idle.find(policy => isDeepStrictEqual(policy.lora, lora));
    if (fitting) return fitting;
    const remove = (gone: SamplingPolicy) => this.#policies.splice(this.#policies.indexOf(gone), 1)[0];
    const gone = this.#policies.length >= maxPolicies ? remove(idle[0]) : undefined;
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
