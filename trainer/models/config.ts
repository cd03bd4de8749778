import type { Quantization } from '../tensor/graph/operations/quantized/blockwise.ts';
import type { LoraConfig } from './lora.ts';

export const ARCHITECTURES = ['qwen2', 'qwen3', 'llama'] as const;
export type Architecture = (typeof ARCHITECTURES)[number];

/** How rotary frequencies are stretched beyond the context the model was trained with. */
export type RopeScaling =
  | { readonly kind: 'none' }
  | { readonly kind: 'linear'; readonly factor: number }
  | {
      readonly kind: 'llama3';
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      readonly originalMaxPositions: number;
    };

/** Shape of a decoder: everything that its tensor program depends on. */
export interface DecoderConfig {
  readonly architecture: Architecture;
  readonly vocabularySize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Fewer than `heads`: grouped-query attention. */
  readonly keyValueHeads: number;
  readonly headDimension: number;
  readonly maxPositions: number;
  readonly normEpsilon: number;
  readonly rope: { readonly theta: number; readonly scaling: RopeScaling };
  /** Bias on the query, key and value projections. */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection. */
  readonly outputBias: boolean;
  readonly feedForwardBias: boolean;
  /** RMS norm on every head's query and key (Qwen3). */
  readonly queryKeyNorm: boolean;
  /** The output layer is the embedding table. */
  readonly tiedEmbeddings: boolean;
  /** Standard deviation of the weights of a fresh model. */
  readonly initializerRange: number;
  readonly bosTokenId: number | null;
  readonly eosTokenId: number | readonly number[] | null;
  readonly padTokenId: number | null;
  /** Adapters next to the weights; not part of `config.json`. */
  readonly lora?: LoraConfig;
  /** How the linear weights next to adapters are stored; float32 when absent. Not part of `config.json`. */
  readonly quantization?: Quantization;
}

export class ModelConfigError extends Error {
  override readonly name = 'ModelConfigError';
}

/** Sizes of a model from scratch; what is left out is Qwen2 with four heads, as small policies use it. */
export interface ScratchSizes {
  readonly vocabularySize: number;
  readonly hiddenSize?: number;
  readonly layers?: number;
  readonly heads?: number;
  readonly keyValueHeads?: number;
  readonly intermediateSize?: number;
  readonly maxPositions?: number;
  readonly ropeTheta?: number;
  readonly initializerRange?: number;
  readonly bosTokenId?: number;
  readonly eosTokenId?: number;
  readonly padTokenId?: number;
}

/**
 * Config of a Qwen2 decoder from scratch.
 * @throws ModelConfigError when the sizes do not fit each other
 */
export function scratchConfig(sizes: ScratchSizes): DecoderConfig {
  const hiddenSize = sizes.hiddenSize ?? 64;
  const heads = sizes.heads ?? 4;
  return checkedConfig({
    architecture: 'qwen2',
    vocabularySize: sizes.vocabularySize,
    hiddenSize,
    intermediateSize: sizes.intermediateSize ?? Math.round((hiddenSize * 5) / 2),
    layers: sizes.layers ?? 2,
    heads,
    keyValueHeads: sizes.keyValueHeads ?? heads,
    headDimension: hiddenSize / heads,
    maxPositions: sizes.maxPositions ?? 1024,
    normEpsilon: 1e-6,
    rope: { theta: sizes.ropeTheta ?? 1e4, scaling: { kind: 'none' } },
    queryKeyValueBias: true,
    outputBias: false,
    feedForwardBias: false,
    queryKeyNorm: false,
    tiedEmbeddings: true,
    initializerRange: sizes.initializerRange ?? 0.02,
    bosTokenId: sizes.bosTokenId ?? null,
    eosTokenId: sizes.eosTokenId ?? null,
    padTokenId: sizes.padTokenId ?? null,
  });
}

/** Rotary frequencies of each pair of a head, in radians a position: float64 [headDimension / 2]. */
export function ropeFrequencies(config: DecoderConfig): Float64Array {
  const half = config.headDimension / 2;
  const { theta, scaling } = config.rope;
  return Float64Array.from({ length: half }, (_, i) => {
    const frequency = theta ** (-i / half);
    if (scaling.kind === 'none') return frequency;
    if (scaling.kind === 'linear') return frequency / scaling.factor;
    // Llama 3.1: long waves are stretched, short ones kept, those between interpolated.
    const wavelength = (2 * Math.PI) / frequency;
    const { factor, lowFrequencyFactor, highFrequencyFactor, originalMaxPositions } = scaling;
    if (wavelength > originalMaxPositions / lowFrequencyFactor) return frequency / factor;
    if (wavelength < originalMaxPositions / highFrequencyFactor) return frequency;
    const smooth =
      (originalMaxPositions / wavelength - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
    return ((1 - smooth) * frequency) / factor + smooth * frequency;
  });
}

/** @throws ModelConfigError when the sizes of a config do not fit each other */
export function checkedConfig(config: DecoderConfig): DecoderConfig {
  for (const key of ['vocabularySize', 'hiddenSize', 'intermediateSize', 'layers', 'heads'] as const) {
    if (!Number.isInteger(config[key]) || config[key] < 1) {
      throw new ModelConfigError(`${key} must be an integer of at least 1, got ${config[key]}`);
    }
  }
  if (!Number.isInteger(config.headDimension) || config.headDimension % 2 !== 0) {
    throw new ModelConfigError(
      `the size of a head must be an even integer, got ${config.headDimension} (hidden size ${config.hiddenSize}, ${config.heads} heads)`,
    );
  }
  if (config.heads % config.keyValueHeads !== 0) {
    throw new ModelConfigError(
      `the number of key-value heads must divide the ${config.heads} heads, got ${config.keyValueHeads}`,
    );
  }
  return config;
}
