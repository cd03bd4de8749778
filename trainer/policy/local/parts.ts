import { availableParallelism } from 'node:os';
import type { DecoderConfig } from '../../models/config.ts';
import { initialize, parameterSpecs } from '../../models/parameters.ts';
import { RUNTIME_CHOICES, type RuntimeChoice, type RuntimeKind } from '../../runtime/choice.ts';
import { chooseRuntime } from '../../runtime/open-runtime.ts';
import { ParameterStore } from '../../runtime/parameter-store.ts';
import { compileGrammar, type Grammars } from '../engine/grammar.ts';
import { NORM_BLOCK } from './adamw.ts';
import { readConfig, readWeights } from './checkpoint.ts';
import { DEFAULT_TOKEN_BUDGET } from './micro-batches.ts';
import type { Slice, WorkerSetup } from './protocol.ts';

/** Sequences that keep their cache at once, over all workers, unless told otherwise. */
const DEFAULT_OPEN_SEQUENCES = 256;
const DOUBLE_BYTES = 8;

export interface LocalPolicyOptions {
  /** A config to start from scratch, or a folder in the Hugging Face layout. */
  readonly model: DecoderConfig | string;
  /** Seeds fresh weights. */
  readonly seed: number;
  /** Threads that share the sequences; the machine's cores when absent. A GPU is driven by one, whatever is given. */
  readonly workers?: number;
  /** Threads of one worker's matrix products; 1 when absent. More workers are faster than more threads for small models. */
  readonly threads?: number;
  /** `onnx` when absent. */
  readonly runtime?: RuntimeChoice;
  /** Adds a scalar head on the trunk, 0 at first unless the folder has one. */
  readonly valueHead: boolean;
  /** Longest sequence, prompts and responses together; the model's maximum when absent. */
  readonly maxSequenceLength?: number;
  /** Sequences that keep their cache at once; others are computed anew when they go on. */
  readonly maxOpenSequences?: number;
  /** What constrained requests may name. */
  readonly grammars?: Grammars;
  /** After an update, sequences go on from what older weights computed of them instead of computing it again. */
  readonly keepStaleCache?: boolean;
  /** Padded tokens that go through the model at once while it learns or scores. */
  readonly tokenBudget?: number;
  /** While it learns, computes each layer a second time on the way back instead of keeping all that it held. */
  readonly recompute?: boolean;
  /** Written beside the weights: a tokenizer's files by name. */
  readonly files?: { readonly [name: string]: string };
}

/** Everything a policy is made of before its threads run. */
export interface PolicyParts {
  readonly options: LocalPolicyOptions;
  readonly config: DecoderConfig;
  readonly runtime: RuntimeKind;
  readonly maxSequenceLength: number;
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
  const { model, runtime = 'onnx' } = options;
  if (!RUNTIME_CHOICES.includes(runtime)) {
    throw new RangeError(`runtime ${runtime} is not known; choose ${RUNTIME_CHOICES.join(', ')}`);
  }
  const config = typeof model === 'string' ? await readConfig(model) : model;
  const maxSequenceLength = options.maxSequenceLength ?? config.maxPositions;
  if (maxSequenceLength > config.maxPositions) {
    throw new RangeError(
      `maxSequenceLength ${maxSequenceLength} is more than the model's ${config.maxPositions} positions`,
    );
  }
  for (const [name, grammar] of Object.entries(options.grammars ?? {})) {
    compileGrammar(name, grammar, config.vocabularySize);
  }
  const specs = parameterSpecs(config, options.valueHead);
  const weights = new ParameterStore(specs);
  if (typeof model === 'string') await readWeights(model, weights);
  else initialize(weights, specs, config.initializerRange, options.seed);
  const blocks = Math.ceil(weights.flat.length / NORM_BLOCK);
  return {
    options,
    config,
    runtime: await chooseRuntime(runtime, config.hiddenSize),
    maxSequenceLength,
    weights,
    first: weights.emptyLike(),
    second: weights.emptyLike(),
    squares: new Float64Array(new SharedArrayBuffer(blocks * DOUBLE_BYTES)),
  };
}

/** What each worker is started with. */
export function workerSetups({
  options,
  config,
  runtime,
  maxSequenceLength,
  weights,
  first,
  second,
  squares,
}: PolicyParts): WorkerSetup[] {
  const count = runtime === 'webgpu' ? 1 : (options.workers ?? availableParallelism());
  const open = options.maxOpenSequences ?? DEFAULT_OPEN_SEQUENCES;
  if (!Number.isInteger(count) || count < 1) {
    throw new RangeError(`workers must be an integer of at least 1, got ${count}`);
  }
  const gradients = Array.from({ length: count }, () => weights.emptyLike().share());
  return gradients.map((_, index) => ({
    index,
    config,
    runtime,
    valueHead: options.valueHead,
    maxSequenceLength,
    maxOpenSequences: Math.ceil(open / count),
    tokenBudget: options.tokenBudget ?? DEFAULT_TOKEN_BUDGET,
    recompute: options.recompute ?? false,
    threads: options.threads ?? 1,
    grammars: options.grammars ?? {},
    files: options.files ?? {},
    keepStaleCache: options.keepStaleCache ?? false,
    weights: weights.share(),
    firstMoments: first.share(),
    secondMoments: second.share(),
    gradients,
    squares: squares.buffer,
    version: 0,
  }));
}

/** Cuts [0, length) into one slice a worker, on borders of norm blocks. */
export function cutIntoSlices(length: number, workers: number): Slice[] {
  const blocks = Math.ceil(length / NORM_BLOCK);
  const border = (w: number) => Math.min(length, Math.round((blocks * w) / workers) * NORM_BLOCK);
  return Array.from({ length: workers }, (_, w) => ({ start: border(w), end: border(w + 1) }));
}
