import { availableParallelism } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { blockBytes } from '../generation/cache/block-layout.ts';
import { BLOCK_SIZE } from '../generation/cache/block-table.ts';
import { compileGrammar, type Grammars } from '../generation/grammar.ts';
import { squaredNorms, startMagnitudes } from '../models/adapters/dora.ts';
import type { LoraConfig } from '../models/adapters/lora.ts';
import { withLora } from '../models/adapters/peft.ts';
import type { DecoderConfig } from '../models/config.ts';
import {
  initialize,
  loraSpecs,
  type ParameterSpec,
  parameterSpecs,
  trainedSpecs,
} from '../models/parameters.ts';
import { storedBytes, storedParameters } from '../models/quantized.ts';
import type { Quantization } from '../tensor/graph/operations/quantized/blockwise.ts';
import {
  PRECISIONS,
  type Precision,
  RUNTIME_CHOICES,
  type RuntimeChoice,
  type RuntimeKind,
} from '../tensor/runtime/choice.ts';
import { chooseRuntime, refusePrecision } from '../tensor/runtime/open-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { readAdapterConfig } from './checkpoint/adapter-folder.ts';
import { readBase, readTrained } from './checkpoint/checkpoint.ts';
import { findModel, type ModelFolders, readConfig } from './checkpoint/model-folder.ts';
import { NORM_BLOCK } from './learning/adamw.ts';
import { checkLossScale, type LossScaleSettings } from './learning/loss-scale.ts';
import { DEFAULT_TOKEN_BUDGET } from './learning/micro-batches.ts';
import { machineMemory, refuseWhatCannotFit, refuseWhatNoGpuHolds } from './memory.ts';
import type { WeightSlice, WorkerSetup } from './workers/protocol.ts';

/** Sequences that keep their cache at once, over all workers, unless told otherwise. */
const DEFAULT_OPEN_SEQUENCES = 256;
const DOUBLE_BYTES = 8;
const FLOAT_BYTES = 4;

/** A model in memory. */
export interface ModelState {
  readonly config: DecoderConfig;
  /** Where it was found; null from scratch. */
  readonly folders: ModelFolders | null;
  /** What stays as it is next to adapters; null where everything is learned. */
  readonly base: ParameterStore | null;
  /** What is learned. */
  readonly weights: ParameterStore;
}

export interface LocalPolicyOptions {
  /**
   * A config to start from scratch; a folder in the Hugging Face layout: a whole model, or an adapter in PEFT's; or another
   * policy's model, of which it shares what stays as it is and copies what is learned.
   */
  readonly model: DecoderConfig | string | ModelState;
  /** Folder of the base where `model` is an adapter; where its config says, when absent. */
  readonly base?: string;
  /** Adapters to learn next to the model, which then stays as it is; an adapter's folder brings its own. */
  readonly lora?: LoraConfig;
  /** Share of what adapters read that becomes 0 while they learn; none when absent. Scores and samples have none. */
  readonly loraDropout?: number;
  /** How the linear weights under adapters are stored; float32 when absent. They are computed with in float32. */
  readonly quantization?: Quantization;
  /** Seeds fresh weights. */
  readonly seed: number;
  /** Threads that share the sequences; the machine's cores when absent. A GPU is driven by one, regardless of this number. */
  readonly workers?: number;
  /** Threads of one worker's matrix products; 1 when absent. More workers are faster than more threads for small models. */
  readonly threads?: number;
  /** `onnx` when absent. */
  readonly runtime?: RuntimeChoice;
  /** Of the factors of products; `float32` when absent. `float16` takes a GPU that has it. */
  readonly precision?: Precision;
  /** Bytes that the GPU has, for WebGPU does not say; unchecked when absent. */
  readonly gpuMemory?: number;
  /** How the loss is scaled with products of float16. */
  readonly lossScale?: LossScaleSettings;
  /** Adds a scalar head on the trunk, 0 at first unless the folder has one. */
  readonly valueHead: boolean;
  /** Only generates and scores: there is no memory for gradients and moments, and an update is refused. */
  readonly generationOnly?: boolean;
  /** Estimates values and predicts no tokens: it has no output layer, and its loss is the value term alone. */
  readonly critic?: boolean;
  /** Longest sequence, prompts and responses together; the model's maximum when absent. */
  readonly maxSequenceLength?: number;
  /** Sequences that keep their cache at once; others are computed anew when they go on. */
  readonly maxOpenSequences?: number;
  /** What constrained requests may name. */
  readonly grammars?: Grammars;
  /** After an update, sequences go on from what older weights computed of them instead of computing it again. */
  readonly keepStaleCache?: boolean;
  /** Tokens that go through the model at once while it learns or scores, padding included. */
  readonly tokenBudget?: number;
  /** Learns and scores sequences of unequal length without padding them; so when absent. What comes out is the same. */
  readonly packing?: boolean;
  /** Gradient checkpointing: while it learns, computes each layer again in the backward pass instead of keeping its activations. */
  readonly recompute?: boolean;
  /** Written next to the weights: a tokenizer's files by name. */
  readonly files?: { readonly [name: string]: string };
}

/** Everything a policy is made of before its threads run. */
export interface PolicyParts {
  readonly options: LocalPolicyOptions;
  readonly config: DecoderConfig;
  readonly runtime: RuntimeKind;
  readonly maxSequenceLength: number;
  /** Where the model was found; null from scratch. */
  readonly place: ModelFolders | null;
  /** What stays as it is next to adapters; null where everything is learned. */
  readonly base: ParameterStore | null;
  /** Squared norms of the rows of its weights, where DoRA adapts them. */
  readonly norms: ParameterStore | null;
  /** Adapters that a reference is made of; null without adapters. */
  readonly reference: ParameterStore | null;
  /** What is learned. */
  readonly weights: ParameterStore;
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
  const config: DecoderConfig = {
    ...stored,
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
  const count = (specs: readonly ParameterSpec[]): number =>
    specs.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  refusePrecision(kind, precision);
  const trained = count(trainedSpecs(config, options.valueHead));
  const frozen =
    config.lora === undefined
      ? 0
      : storedBytes(parameterSpecs(config, false), config.quantization) / FLOAT_BYTES;
  const counts = options.generationOnly ? { trained: 0, frozen: trained + frozen } : { trained, frozen };
  refuseWhatCannotFit(counts, workerCount(options, kind), machineMemory());
  if (kind === 'webgpu' && options.gpuMemory !== undefined) {
    const open = options.maxOpenSequences ?? DEFAULT_OPEN_SEQUENCES;
    const pages = open * Math.ceil(maxSequenceLength / BLOCK_SIZE);
    refuseWhatNoGpuHolds({ trained, frozen }, pages * blockBytes(config, config.layers), options.gpuMemory);
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

/** Makes stores for what learning keeps of each weight; they are empty where nothing is learned. */
function learnedStore(
  { generationOnly = false }: LocalPolicyOptions,
  weights: ParameterStore,
): () => ParameterStore {
  return () => (generationOnly ? new ParameterStore([]) : weights.emptyLike());
}

/** What `model` stands for. */
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

/** Weights copied by name from a model in memory, fresh where it has none; what stays as it is, is shared. */
function takenWeights(
  config: DecoderConfig,
  { base, weights: given }: ModelState,
  { seed, valueHead }: LocalPolicyOptions,
): Pick<PolicyParts, 'base' | 'norms' | 'weights'> {
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

/** @throws RangeError when the folder's adapter is another than the one asked for */
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

/** Fresh weights, or those of the folder; what stays as it is apart from what is learned. */
async function loadWeights(
  config: DecoderConfig,
  place: ModelFolders | null,
  { seed, valueHead }: LocalPolicyOptions,
): Promise<Pick<PolicyParts, 'base' | 'norms' | 'weights'>> {
  const fresh = (specs: readonly ParameterSpec[]) => freshWeights(specs, config, seed);
  const frozen = config.lora === undefined ? [] : parameterSpecs(config, false);
  const trained = trainedSpecs(config, valueHead);
  const stored = () => new ParameterStore(storedParameters(frozen, config.quantization));
  const base = frozen.length === 0 ? null : place === null ? fresh(frozen) : stored();
  if (base !== null && place !== null) await readBase(place.base, config, base);
  const isFresh = place === null || (base !== null && place.adapter === null);
  const weights = isFresh ? fresh(trained) : new ParameterStore(trained);
  const norms = squaredNorms(config, base);
  if (norms !== null) startMagnitudes(config, norms, weights);
  if (place !== null) await readTrained(place, config, weights);
  return { base, norms, weights };
}

/** @throws RangeError for a number that cannot be one of workers */
function workerCount({ workers }: LocalPolicyOptions, runtime: RuntimeKind): number {
  const count = runtime === 'webgpu' ? 1 : (workers ?? availableParallelism());
  if (Number.isInteger(count) && count >= 1) return count;
  throw new RangeError(`workers must be an integer of at least 1, got ${count}`);
}

/** What each worker is started with. */
export function workerSetups({
  options,
  config,
  runtime,
  maxSequenceLength,
  base,
  norms,
  reference,
  weights,
  first,
  second,
  squares,
}: PolicyParts): WorkerSetup[] {
  const count = workerCount(options, runtime);
  const open = options.maxOpenSequences ?? DEFAULT_OPEN_SEQUENCES;
  const learned = learnedStore(options, weights);
  const gradients = Array.from({ length: count }, () => learned().share());
  return gradients.map((_, index) => ({
    index,
    config,
    runtime,
    precision: options.precision ?? 'float32',
    valueHead: options.valueHead,
    critic: options.critic ?? false,
    maxSequenceLength,
    maxOpenSequences: Math.ceil(open / count),
    tokenBudget: options.tokenBudget ?? DEFAULT_TOKEN_BUDGET,
    packing: options.packing ?? true,
    recompute: options.recompute ?? false,
    dropout: options.loraDropout ? { probability: options.loraDropout, seed: options.seed } : null,
    threads: options.threads ?? 1,
    grammars: options.grammars ?? {},
    files: options.files ?? {},
    keepStaleCache: options.keepStaleCache ?? false,
    base: base?.share() ?? null,
    norms: norms?.share() ?? null,
    reference: reference?.share() ?? null,
    weights: weights.share(),
    firstMoments: first.share(),
    secondMoments: second.share(),
    gradients,
    squares: squares.buffer,
    version: 0,
  }));
}

/** Cuts [0, length) into one slice a worker, on borders of norm blocks. */
export function sliceWeights(length: number, workers: number): WeightSlice[] {
  const blocks = Math.ceil(length / NORM_BLOCK);
  const border = (w: number) => Math.min(length, Math.round((blocks * w) / workers) * NORM_BLOCK);
  return Array.from({ length: workers }, (_, w) => ({ start: border(w), end: border(w + 1) }));
}
