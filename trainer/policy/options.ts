import { availableParallelism } from 'node:os';
import type { Grammars } from '../generation/grammar.ts';
import type { LoraConfig } from '../models/adapters/lora.ts';
import type { DecoderConfig } from '../models/config.ts';
import type { BasePrecision } from '../models/frozen-weights.ts';
import type { Quantization } from '../tensor/graph/operations/blocks.ts';
import type { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import type { Precision, RuntimeChoice, RuntimeKind } from '../tensor/runtime/runtime.ts';
import type { ModelFolders } from './checkpoint/model-folder.ts';
import type { LossScaleSettings } from './learning/loss-scale.ts';

/** Default number of sequences that keep their cache at once, over all workers. */
const DEFAULT_OPEN_SEQUENCES = 256;

/** A model in memory. */
export interface ModelState {
  readonly config: DecoderConfig;
  /** Folders of the model; null from scratch. */
  readonly folders: ModelFolders | null;
  /** Frozen weights next to adapters; null where everything is learned. */
  readonly base: ParameterStore | null;
  /** Learned weights. */
  readonly weights: ParameterStore;
}

/** Options of a local policy. */
export interface LocalPolicyOptions {
  /**
   * A config to start from scratch; a folder in the Hugging Face layout: a whole model, or an adapter in PEFT's; or
   * another policy's model, with its frozen weights shared and its learned ones copied.
   */
  readonly model: DecoderConfig | string | ModelState;
  /** Folder of the base where `model` is an adapter; the one in its config when absent. */
  readonly base?: string;
  /** Adapters to learn next to the model, which then is frozen; an adapter's folder has its own. */
  readonly lora?: LoraConfig;
  /** Share of the adapters' inputs that becomes 0 during learning; none when absent. Scores and samples have none. */
  readonly loraDropout?: number;
  /** Storage of the linear weights under adapters; float32 when absent. Arithmetic is in float32. */
  readonly quantization?: Quantization;
  /** Memory and arithmetic of the frozen weights of a GGUF file; `auto` when absent. */
  readonly basePrecision?: BasePrecision;
  /** Seeds fresh weights. */
  readonly seed: number;
  /** Threads that share the sequences; the machine's cores when absent. A GPU always has one. */
  readonly workers?: number;
  /** Threads of one worker's matrix products; 1 when absent. More workers are faster than more threads for small models. */
  readonly threads?: number;
  /** `onnx` when absent. */
  readonly runtime?: RuntimeChoice;
  /** Type of the factors of products; `float32` when absent. `float16` takes a GPU that has it. */
  readonly precision?: Precision;
  /** Bytes of GPU memory, which WebGPU does not report; unchecked when absent. */
  readonly gpuMemory?: number;
  /** Scaling of the loss with float16 products. */
  readonly lossScale?: LossScaleSettings;
  /** Adds a scalar head on the trunk, initially 0 unless the folder has one. */
  readonly valueHead: boolean;
  /** Only generates and scores: no memory for gradients and moments is allocated, and an update is rejected. */
  readonly generationOnly?: boolean;
  /** Estimates values and predicts no tokens: it has no output layer, and its loss is only the value term. */
  readonly critic?: boolean;
  /** Longest sequence, prompts and responses together; the model's maximum when absent. */
  readonly maxSequenceLength?: number;
  /** Sequences that keep their cache at once; others are recomputed when they continue. */
  readonly maxOpenSequences?: number;
  /** Grammars that constrained requests may name. */
  readonly grammars?: Grammars;
  /** After an update, sequences continue from the cache of older weights instead of computing it again. */
  readonly keepStaleCache?: boolean;
  /** Most tokens of a pass during learning or scoring, padding included. */
  readonly tokenBudget?: number;
  /** Gradient checkpointing: recomputes each layer in the backward pass instead of keeping its activations. */
  readonly recompute?: boolean;
  /** Written next to the weights: a tokenizer's files by name. */
  readonly files?: { readonly [name: string]: string };
}

/** Sequences that keep their cache at once, over all workers. */
export function openSequences({
  maxOpenSequences = DEFAULT_OPEN_SEQUENCES,
}: Pick<LocalPolicyOptions, 'maxOpenSequences'>): number {
  return maxOpenSequences;
}

/** @throws RangeError for an invalid number of workers */
export function workerCount({ workers }: LocalPolicyOptions, runtime: RuntimeKind): number {
  const count = runtime === 'webgpu' ? 1 : (workers ?? availableParallelism());
  if (Number.isInteger(count) && count >= 1) return count;
  throw new RangeError(`workers must be an integer of at least 1, got ${count}`);
}
