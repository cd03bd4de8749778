import { totalmem } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { counted } from '../../shared/text.ts';
import { blockBytes } from '../generation/cache/kv-cache.ts';
import { BLOCK_SIZE } from '../generation/cache/sequence-cache.ts';
import { compileGrammar } from '../generation/grammar.ts';
import { KERNELS_HIDDEN_SIZE } from '../generation/programs/kernel-program.ts';
import { squaredNorms, startMagnitudes } from '../models/adapters/dora.ts';
import type { LoraConfig } from '../models/adapters/lora.ts';
import { withLora } from '../models/adapters/peft.ts';
import type { BlockedWeights, DecoderConfig } from '../models/config.ts';
import { storedBytes, storedParameters } from '../models/frozen-weights.ts';
import {
  countWeights,
  initialize,
  isFrozen,
  loraSpecs,
  type ParameterSpec,
  parameterSpecs,
  trainedSpecs,
} from '../models/parameters.ts';
import type { Quantization } from '../tensor/graph/operations/blocks.ts';
import { chooseRuntime, refusePrecision } from '../tensor/runtime/open-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { PRECISIONS, RUNTIME_CHOICES, type RuntimeKind } from '../tensor/runtime/runtime.ts';
import { readBase, readTrained, storedBlocks } from './checkpoint/checkpoint.ts';
import { findModel, type ModelFolders, readAdapterConfig, readConfig } from './checkpoint/model-folder.ts';
import { NORM_BLOCK } from './learning/adamw.ts';
import { checkLossScale } from './learning/loss-scale.ts';
import { type LocalPolicyOptions, type ModelState, openSequences, workerCount } from './options.ts';

const DOUBLE_BYTES = 8;
const FLOAT_BYTES = 4;

/** Parts of a policy before its threads start. */
export interface PolicyParts extends InitialWeights {
  readonly options: LocalPolicyOptions;
  readonly config: DecoderConfig;
  readonly runtime: RuntimeKind;
  readonly maxSequenceLength: number;
  /** Folders of the model; null from scratch. */
  readonly place: ModelFolders | null;
  /** Adapters of a reference; null without adapters. */
  readonly reference: ParameterStore | null;
  readonly first: ParameterStore;
  readonly second: ParameterStore;
  readonly squares: Float64Array<SharedArrayBuffer>;
}

/**
 * Weights and moments, fresh or from the folder.
 * @throws ModelConfigError, SafetensorsError or RangeError for a model or options that do not fit
 */
export async function prepare(options: LocalPolicyOptions): Promise<PolicyParts> {
  const { critic = false, runtime = 'onnx', precision = 'float32', lossScale } = options;
  if (!RUNTIME_CHOICES.includes(runtime)) {
    throw new RangeError(`runtime ${runtime} is not known; choose ${RUNTIME_CHOICES.join(', ')}`);
  }
  if (!PRECISIONS.includes(precision)) {
    throw new RangeError(`precision ${precision} is not known; choose ${PRECISIONS.join(', ')}`);
  }
  if (lossScale !== undefined) checkLossScale(lossScale);
  const { config: found, place, state } = await givenModel(options);
  const whole = state === null ? await adaptedConfig(found, place, options.lora) : found;
  const kind = await chooseRuntime(runtime, found.hiddenSize);
  const { quantization } = options;
  const stored =
    quantization === undefined || state !== null ? whole : quantizedConfig(whole, quantization, place, kind);
  const maxSequenceLength = options.maxSequenceLength ?? stored.maxPositions;
  const kept = state === null ? await keptBlocks(options, stored, place, kind) : stored.blocks;
  const config: DecoderConfig = {
    ...stored,
    ...(kept === undefined ? {} : { blocks: kept }),
    ...(critic ? { tiedEmbeddings: true } : {}),
    ...(stored.rope.scaling.kind === 'longrope' ? { context: maxSequenceLength } : {}),
  };
  if (maxSequenceLength > config.maxPositions) {
    throw new RangeError(
      `maxSequenceLength ${maxSequenceLength} is more than the model's ${config.maxPositions} positions`,
    );
  }
  for (const [name, grammar] of Object.entries(options.grammars ?? {})) {
    compileGrammar(name, grammar, config.vocabularySize);
  }
  refusePrecision(kind, precision);
  const trained = countWeights(trainedSpecs(config, options.valueHead));
  const inMemory = isFrozen(config) ? storedBytes(parameterSpecs(config, false), config) / FLOAT_BYTES : 0;
  // Each worker packs blocks in its own memory.
  const frozen = kept === undefined ? inMemory : (1 + workerCount(options, kind)) * inMemory;
  const counts = options.generationOnly ? { trained: 0, frozen: trained + frozen } : { trained, frozen };
  refuseWhatCannotFit(counts, workerCount(options, kind), machineMemory());
  if (kind === 'webgpu' && options.gpuMemory !== undefined) {
    const blocks = openSequences(options) * Math.ceil(maxSequenceLength / BLOCK_SIZE);
    refuseWhatNoGpuHolds({ trained, frozen }, blocks * blockBytes(config, config.layers), options.gpuMemory);
  }
  const { base, norms, weights } =
    state === null ? await loadWeights(config, place, options) : takenWeights(config, state, options);
  const reference = config.lora === undefined ? null : new ParameterStore(loraSpecs(config, config.lora));
  if (norms !== null) startMagnitudes(config, norms, reference!);
  const learned = learnedStore(options, weights);
  const blocks = Math.ceil(learned().flat.length / NORM_BLOCK);
  return {
    options,
    config,
    runtime: kind,
    maxSequenceLength,
    place,
    base,
    norms,
    reference,
    weights,
    first: learned(),
    second: learned(),
    squares: new Float64Array(new SharedArrayBuffer(blocks * DOUBLE_BYTES)),
  };
}

/** Config, folders and state of `model`. */
async function givenModel({ model, base }: LocalPolicyOptions): Promise<{
  readonly config: DecoderConfig;
  readonly place: ModelFolders | null;
  readonly state: ModelState | null;
}> {
  if (typeof model === 'string') {
    const place = await findModel(model, base);
    return { config: await readConfig(place.base), place, state: null };
  }
  if ('weights' in model) return { config: model.config, place: model.folders, state: model };
  return { config: model, place: null, state: null };
}

/** @throws RangeError when the folder's adapter differs from the requested one */
async function adaptedConfig(
  config: DecoderConfig,
  place: ModelFolders | null,
  asked: LoraConfig | undefined,
): Promise<DecoderConfig> {
  const wanted = asked && withLora(config, asked).lora;
  const adapter = place?.adapter ? (await readAdapterConfig(place.adapter)).lora : undefined;
  const found = adapter && withLora(config, adapter).lora;
  if (found && wanted && !isDeepStrictEqual(found, wanted)) {
    throw new RangeError(
      `${place!.adapter} holds an adapter of ${JSON.stringify(found)}, asked for is one of ${JSON.stringify(wanted)}`,
    );
  }
  const lora = found ?? wanted;
  return lora === undefined ? config : { ...config, lora };
}

/**
 * Storage of frozen weights of a GGUF file; undefined for float32.
 * @throws RangeError where blocks are requested but impossible
 */
async function keptBlocks(
  { basePrecision = 'auto', generationOnly = false, quantization }: LocalPolicyOptions,
  config: DecoderConfig,
  place: ModelFolders | null,
  runtime: RuntimeKind,
): Promise<BlockedWeights | undefined> {
  if (basePrecision === 'float32') return undefined;
  const wanted = basePrecision === 'blocks';
  const refuse = (why: string) => {
    if (wanted) throw new RangeError(`base precision blocks ${why}: choose float32 or auto`);
    return undefined;
  };
  if (config.lora === undefined && !generationOnly) {
    return refuse('is of frozen weights, and without adapters all weights are learned');
  }
  if (runtime === 'webgpu') return refuse('takes the processor');
  if (quantization !== undefined) return refuse(`is not of weights that are quantized as ${quantization}`);
  // Small models have faster kernels, and learning with many episodes at once gains nothing.
  if (!wanted && (!generationOnly || config.hiddenSize <= KERNELS_HIDDEN_SIZE)) return undefined;
  const blocks = place === null ? undefined : await storedBlocks(place.base, config);
  return blocks ?? refuse('takes a GGUF file with weights in blocks');
}

/** The config with its base quantized. @throws RangeError where there is no frozen base, or the runtime cannot */
function quantizedConfig(
  config: DecoderConfig,
  quantization: Quantization,
  place: ModelFolders | null,
  runtime: RuntimeKind,
): DecoderConfig {
  if (config.lora === undefined || place === null) {
    throw new RangeError(
      `quantization ${quantization} is of the frozen weights under adapters: it takes a model's folder and LoRA`,
    );
  }
  if (runtime === 'webgpu') {
    throw new RangeError(`quantization ${quantization} takes the processor: set the runtime to onnx`);
  }
  return { ...config, quantization };
}

/** Initial weights of a policy. */
interface InitialWeights {
  /** Frozen weights next to adapters; null where everything is learned. */
  readonly base: ParameterStore | null;
  /** Squared norms of the rows of its weights, where DoRA adapts them. */
  readonly norms: ParameterStore | null;
  /** Learned weights. */
  readonly weights: ParameterStore;
}

/** Fresh weights, or those of the folder, split into frozen and learned ones. */
async function loadWeights(
  config: DecoderConfig,
  place: ModelFolders | null,
  { seed, valueHead }: LocalPolicyOptions,
): Promise<InitialWeights> {
  const fresh = (specs: readonly ParameterSpec[]) => freshWeights(specs, config, seed);
  const frozen = isFrozen(config) ? parameterSpecs(config, false) : [];
  const trained = trainedSpecs(config, valueHead);
  const stored = () => new ParameterStore(storedParameters(frozen, config));
  const base = frozen.length === 0 ? null : place === null ? fresh(frozen) : stored();
  if (base !== null && place !== null) await readBase(place.base, config, base);
  const isFresh = place === null || (base !== null && place.adapter === null);
  const weights = isFresh ? fresh(trained) : new ParameterStore(trained);
  const norms = squaredNorms(config, base);
  if (norms !== null) startMagnitudes(config, norms, weights);
  if (place !== null) await readTrained(place, config, weights);
  return { base, norms, weights };
}

/** Weights copied by name from a model in memory, fresh where it has none; frozen ones are shared. */
function takenWeights(
  config: DecoderConfig,
  { base, weights: given }: ModelState,
  { seed, valueHead }: LocalPolicyOptions,
): InitialWeights {
  const weights = freshWeights(trainedSpecs(config, valueHead), config, seed);
  const norms = squaredNorms(config, base);
  if (norms !== null) startMagnitudes(config, norms, weights);
  const wanted = new Set(weights.layout.map(({ name }) => name));
  for (const { name } of given.layout) {
    if (wanted.has(name)) weights.array(name).set(given.array(name));
  }
  return { base, norms, weights };
}

function freshWeights(specs: readonly ParameterSpec[], config: DecoderConfig, seed: number): ParameterStore {
  const store = new ParameterStore(specs);
  initialize(store, specs, config.initializerRange, seed);
  return store;
}

/** Makes stores for what learning keeps of each weight; they are empty where nothing is learned. */
export function learnedStore(
  { generationOnly = false }: LocalPolicyOptions,
  weights: ParameterStore,
): () => ParameterStore {
  return () => (generationOnly ? new ParameterStore([]) : weights.emptyLike());
}

const GIBIBYTE = 2 ** 30;

/** Numbers of weights of a policy. */
interface WeightCounts {
  /** Learned weights. */
  readonly trained: number;
  /** Frozen weights next to adapters. */
  readonly frozen: number;
}

/** Bytes of memory available to this process: the machine's, or the limit of its container. */
export function machineMemory(): number {
  const allowed = process.constrainedMemory();
  return allowed > 0 ? Math.min(totalmem(), allowed) : totalmem();
}

/**
 * Rejects a policy that needs more memory for weights and learning than there is, before any cache or activation.
 * @param available bytes of memory
 * @throws RangeError with the sizes and what to change, when it cannot fit
 */
export function refuseWhatCannotFit(
  { trained, frozen }: WeightCounts,
  workers: number,
  available: number,
): void {
  const parts = {
    weights: FLOAT_BYTES * (trained + frozen),
    'two moments': 2 * FLOAT_BYTES * trained,
    [`gradients of ${counted(workers, 'worker')}`]: 2 * workers * FLOAT_BYTES * trained,
  };
  refuseMore(parts, 'the machine', available, [
    ...(workers > 1 ? ['1 worker with several threads'] : []),
    ...(frozen === 0 ? [ADAPTERS] : []),
    'a smaller model',
  ]);
}

/**
 * Rejects a policy that needs more GPU memory than there is, before any activation. WebGPU does not report the size of
 * the memory.
 * @param cache bytes of keys and values of all sequences that may have some at once
 * @param available bytes of memory
 * @throws RangeError with the sizes and what to change, when it cannot fit
 */
export function refuseWhatNoGpuHolds(
  { trained, frozen }: WeightCounts,
  cache: number,
  available: number,
): void {
  const parts = {
    weights: FLOAT_BYTES * (trained + frozen),
    'two moments': 2 * FLOAT_BYTES * trained,
    gradients: FLOAT_BYTES * trained,
    'the cache of keys and values': cache,
  };
  refuseMore(parts, 'policy.gpu_memory_gib', available, [
    'a smaller rollout.concurrency or policy.context (the cache)',
    ...(frozen === 0 ? [ADAPTERS] : []),
    'a smaller model',
  ]);
}

/**
 * Rejects gradients that do not fit in memory together for a comparison.
 * @param available bytes of memory
 * @throws RangeError with the size and what to change, when they cannot fit
 */
export function refuseGradients(vectors: number, trained: number, available: number): void {
  const parts = { [`${vectors} gradients of ${trained} weights`]: FLOAT_BYTES * vectors * trained };
  refuseMore(parts, 'the machine', available, [
    'fewer diagnostics.gradients.snr_groups',
    'fewer diagnostics.gradients.buckets',
    ADAPTERS,
  ]);
}

const ADAPTERS = 'adapters (LoRA) instead of all weights';

function refuseMore(
  parts: Readonly<Record<string, number>>,
  where: string,
  available: number,
  advice: readonly string[],
): void {
  const total = Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
  if (total <= available) return;
  const shown = (bytes: number) => `${(bytes / GIBIBYTE).toFixed(1)} GiB`;
  const list = Object.entries(parts).map(([what, bytes]) => `${what} ${shown(bytes)}`);
  throw new RangeError(
    `the policy takes ${shown(total)} (${list.join(', ')}) and ${where} has ${shown(available)}: take ${advice.join(', or ')}`,
  );
}
