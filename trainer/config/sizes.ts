import { blockBytes } from '../generation/cache/kv-cache.ts';
import { BLOCK_SIZE } from '../generation/cache/sequence-cache.ts';
import { withLora } from '../models/adapters/peft.ts';
import type { DecoderConfig } from '../models/config.ts';
import { storedBytes } from '../models/frozen-weights.ts';
import { countWeights, parameterSpecs, trainedSpecs } from '../models/parameters.ts';
import { storedBlocks } from '../policy/checkpoint/checkpoint.ts';
import { findModel, readModelConfig } from '../policy/checkpoint/model-folder.ts';
import { logitRows } from '../policy/learning/sequence-graph.ts';
import { SESSIONS_BYTES } from '../tensor/runtime/runtime.ts';
import { hasValueHead, needsReference } from './derived.ts';
import { loraConfig } from './sections/policy.ts';
import type { RunSettings } from './settings.ts';

type Policy = RunSettings['policy'];

const FLOAT_BYTES = 4;
/** Most memory of a worker's cache on the CPU. */
const MAX_CACHE_BYTES = 2 ** 32;
/**
 * Values that a layer keeps for its backward pass, as multiples of hidden and intermediate size; measured, approximate.
 */
const KEPT = { hidden: 10, intermediate: 4, vocabulary: 3 };
/** Values of the hidden size that a layer's adapters read, besides one of the intermediate size. */
const READ_BY_ADAPTERS = 3;
/** Resident memory of the trainer before it has a policy, and of a worker thread before it has a program; measured. */
const PROGRAM_BYTES = 110e6;
const WORKER_BYTES = 45e6;

/** Memory and parameters of a run. */
export interface RunSizes {
  /** Weights of the policy, its adapters and value head included. */
  readonly parameters: number;
  /** Learned weights: all, or with adapters the adapters and the value head. */
  readonly trained: number;
  /** Learned weights of the critic; absent where there is none. */
  readonly critic?: number;
  /** Bytes by purpose; the cache and activations grow only as needed. */
  readonly memory: readonly { readonly what: string; readonly bytes: number }[];
  readonly totalBytes: number;
  /** Episodes of an iteration, and of the whole run. */
  readonly episodesPerIteration: number;
  readonly episodes: number;
}

/**
 * Sizes of a run with a policy of this shape on this machine's CPUs, or on its GPU where the settings name that.
 * @param critic shape of its critic; undefined where it has none
 */
export function runSizes(settings: RunSettings, config: DecoderConfig, critic?: DecoderConfig): RunSizes {
  const { policy, rollout, training, validation } = settings;
  const onGpu = policy.runtime === 'webgpu';
  const workers = onGpu ? 1 : (policy.workers ?? 1);
  const trained = countWeights(trainedSpecs(config, hasValueHead(settings)));
  const adapted = config.lora !== undefined;
  const parameters = (adapted ? countWeights(parameterSpecs(config, false)) : 0) + trained;
  const base = adapted ? storedBytes(parameterSpecs(config, false), config) : 0;
  const learned = FLOAT_BYTES * trained;
  const weights = base + learned;
  const reference = adapted && policy.reference === null ? learned : weights;
  const episodesPerIteration = rollout.env_groups * rollout.group_size;
  // Asynchronous rollouts begin episodes ahead of the iteration that learns from them.
  const open = rollout.asynchronous
    ? rollout.concurrency
    : Math.min(rollout.concurrency, Math.max(episodesPerIteration, validation.episodes));
  const blocks = Math.ceil(open / workers) * Math.ceil(policy.context / BLOCK_SIZE);
  const cache = Math.min(onGpu ? Infinity : MAX_CACHE_BYTES, blocks * blockBytes(config, config.layers));
  const tokens = policy.micro_batch_tokens;
  const activations = FLOAT_BYTES * activationValues(config, tokens, policy.recompute, onGpu);
  const criticSizes = critic && sizesOfCritic(critic, policy, { workers, onGpu });
  const memory = [
    { what: 'weights', bytes: weights },
    { what: 'optimizer (two moments)', bytes: 2 * learned },
    onGpu
      ? { what: 'gradients', bytes: learned }
      : { what: `gradients (${workers} workers, a sum and a part each)`, bytes: 2 * workers * learned },
    { what: `cache of ${open} open episodes, at most`, bytes: workers * cache },
    { what: 'activations, about', bytes: workers * activations },
    ...(onGpu ? [] : [{ what: 'compiled programs, at most', bytes: workers * SESSIONS_BYTES }]),
    ...(config.blocks === undefined
      ? []
      : [{ what: 'weights packed by each worker, about', bytes: workers * base }]),
    { what: `the program and ${workers} workers`, bytes: PROGRAM_BYTES + workers * WORKER_BYTES },
    ...(criticSizes?.memory ?? []),
    ...(settings.optimizer.ema ? [{ what: 'average of the weights', bytes: learned }] : []),
    ...(needsReference(settings) && policy.reference_endpoint === null
      ? [{ what: 'reference policy', bytes: reference }]
      : []),
  ];
  return {
    parameters,
    trained,
    ...(criticSizes ? { critic: criticSizes.parameters } : {}),
    memory,
    totalBytes: memory.reduce((sum, { bytes }) => sum + bytes, 0),
    episodesPerIteration,
    episodes: episodesPerIteration * training.steps,
  };
}

/**
 * Learned weights and memory of a critic. With adapters it shares the policy's base on the CPU, unless it has its own.
 */
function sizesOfCritic(
  config: DecoderConfig,
  { critic, micro_batch_tokens, recompute }: Policy,
  { workers, onGpu }: { readonly workers: number; readonly onGpu: boolean },
) {
  const parameters = countWeights(trainedSpecs(config, true));
  const apart = config.lora !== undefined && (onGpu || critic?.init != null);
  const frozen = apart ? countWeights(parameterSpecs(config, false)) : 0;
  const gradients = onGpu ? 1 : 2 * workers;
  const kept = workers * micro_batch_tokens * keptByLayers(config, recompute);
  return {
    parameters,
    memory: [
      {
        what: 'critic (weights, two moments, gradients)',
        bytes: FLOAT_BYTES * (frozen + (3 + gradients) * parameters),
      },
      { what: "critic's activations, about", bytes: FLOAT_BYTES * kept },
    ],
  };
}

/**
 * Values of a micro-batch that exist at once. Recomputed layers keep only their inputs while the logits exist; the
 * logits are gone when the first layer is recomputed.
 */
function activationValues(config: DecoderConfig, tokens: number, recompute: boolean, onGpu: boolean): number {
  const logits = KEPT.vocabulary * config.vocabularySize * Math.min(tokens, logitRows(config, onGpu));
  const kept = tokens * keptByLayers(config, recompute);
  if (!recompute) return kept + logits;
  const inputs = tokens * config.layers * config.hiddenSize;
  return Math.max(inputs + logits, kept);
}

/** Values of a token that all layers keep for the backward pass. */
function keptByLayers(config: DecoderConfig, recompute: boolean): number {
  const { layers, hiddenSize, experts } = config;
  // Every expert computes every token.
  const width = experts === null ? config.intermediateSize : experts.count * experts.intermediateSize;
  const perLayer = KEPT.hidden * hiddenSize + KEPT.intermediate * width;
  if (!recompute) return layers * perLayer;
  // Measured: for the gradients, about as much as the adapters read stays in memory through the backward pass.
  const read = config.lora === undefined ? 0 : READ_BY_ADAPTERS * hiddenSize + width;
  return layers * (hiddenSize + read) + perLayer;
}

/**
 * The shape of a folder's model as a run trains it: with adapters where `policy.lora` asks for them.
 * @throws ModelConfigError or Error when there is no usable model
 */
export async function readShape(folder: string, { policy }: RunSettings): Promise<DecoderConfig> {
  const { lora, base_precision } = policy;
  const found = await readModelConfig(folder);
  const adapted = found.lora === undefined && lora ? withLora(found, loraConfig(lora)) : found;
  if (lora?.quantization) return { ...adapted, quantization: lora.quantization };
  if (base_precision !== 'blocks') return adapted;
  const blocks = await storedBlocks((await findModel(folder)).base, adapted);
  return blocks === undefined ? adapted : { ...adapted, blocks };
}

/**
 * The shape of a run's critic; undefined where there is none.
 * @param policy the shape of the policy
 * @throws as {@link readShape}
 */
export async function criticShape(
  settings: RunSettings,
  policy: DecoderConfig,
): Promise<DecoderConfig | undefined> {
  const { critic } = settings.policy;
  if (critic === null) return undefined;
  return withoutHead(critic.init === null ? policy : await readShape(critic.init, settings));
}

/** The shape of a critic, which has no output layer. */
function withoutHead(config: DecoderConfig): DecoderConfig {
  return { ...config, tiedEmbeddings: true };
}
