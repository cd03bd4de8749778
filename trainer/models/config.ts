import type { JsonObject } from '../../shared/json.ts';
import type { BlockStorage, Quantization } from '../tensor/graph/operations/blocks.ts';
import type { LoraConfig } from './adapters/lora.ts';

/** Stretching of rotary frequencies beyond the context the model was trained with. */
export type RopeScaling =
  | { readonly kind: 'none' }
  | { readonly kind: 'linear'; readonly factor: number }
  /** NTK-aware scaling that starts beyond `max_position_embeddings`, which no sequence here reaches. */
  | { readonly kind: 'dynamic'; readonly factor: number }
  | {
      readonly kind: 'llama3';
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      readonly originalMaxPositions: number;
    }
  /** Peng et al., 2023. */
  | {
      readonly kind: 'yarn';
      readonly factor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      /** Factor on cos and sin. */
      readonly attentionFactor: number;
      readonly originalMaxPositions: number;
      /** Rounds the bounds of the ramp to whole pairs. */
      readonly truncate: boolean;
    }
  /** Ding et al., 2024: a divisor for each pair, one list up to `originalMaxPositions` and another beyond. */
  | {
      readonly kind: 'longrope';
      readonly shortFactors: readonly number[];
      readonly longFactors: readonly number[];
      readonly attentionFactor: number;
      readonly originalMaxPositions: number;
    };

/** Rotary settings of the layers that share them. */
export interface RopeConfig {
  readonly theta: number;
  readonly scaling: RopeScaling;
}

/** Attention settings in which layers differ. */
export interface LayerAttention {
  /** Positions that a query sees, itself included; null: all before it. */
  readonly window: number | null;
  /** Rotary settings of the layer: the common ones, those of local layers, or none (NoPE). */
  readonly rope: 'global' | 'local' | 'none';
}

/** A mixture of experts in place of a feed-forward layer. */
export interface ExpertsConfig {
  readonly count: number;
  /** Experts for each token. */
  readonly perToken: number;
  /** The weights of a token's experts add up to 1. */
  readonly normalized: boolean;
  readonly intermediateSize: number;
  /** Layers that have experts; the others have a plain feed-forward layer. */
  readonly layers: readonly boolean[];
}

/** The activation of the feed-forward layers. */
export type Activation = 'silu' | 'gelu' | 'gelu_tanh';

/** Features besides sizes in which families of decoders differ. */
export interface DecoderFeatures {
  /** Bias on the query, key and value projections. */
  readonly queryKeyValueBias: boolean;
  /** Bias on the attention's output projection. */
  readonly outputBias: boolean;
  readonly feedForwardBias: boolean;
  /** RMS norm on queries and keys: of every head, or of all heads together. */
  readonly queryKeyNorm: 'none' | 'head' | 'width';
  /** Norms before attention and feed-forward layer, after them, or on both sides. */
  readonly blockNorms: 'before' | 'after' | 'both';
  /** Norms multiply by 1 + weight. */
  readonly normsAddOne: boolean;
  readonly activation: Activation;
  /** Queries, keys and values are one linear layer, and so are gate and up. */
  readonly fusedProjections: boolean;
  /** Factor on the embeddings. */
  readonly embeddingScale: number;
  /** Factor on attention scores; 1 / √headDimension when null. */
  readonly attentionScale: number | null;
  /** Scores s become cap · tanh(s / cap). */
  readonly attentionSoftcap: number | null;
  readonly logitSoftcap: number | null;
  /** Leading elements of a head that rotary embeddings turn. */
  readonly rotaryDimension: number;
  readonly rope: RopeConfig;
  /** Rotary settings of `local` layers. */
  readonly localRope: RopeConfig | null;
  /** By layer; null where all layers see everything before them and use the common angles. */
  readonly attentionLayers: readonly LayerAttention[] | null;
  readonly experts: ExpertsConfig | null;
}

/** Storage of weights that are in blocks, by name. */
export type BlockedWeights = Readonly<Record<string, BlockStorage>>;

/** Shape of a decoder: everything that its tensor program depends on. */
export interface DecoderConfig extends DecoderFeatures {
  /** `model_type` of its family. */
  readonly architecture: string;
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
  /** The output layer is the embedding table. */
  readonly tiedEmbeddings: boolean;
  /** Standard deviation of the weights of a fresh model. */
  readonly initializerRange: number;
  readonly bosTokenId: number | null;
  readonly eosTokenId: number | readonly number[] | null;
  readonly padTokenId: number | null;
  /** Keys of `config.json` that only the family has; they are written back. */
  readonly familyKeys: JsonObject;
  /**
   * Longest sequence of the policy, which LongRoPE depends on; `maxPositions` when absent. Not part of `config.json`.
   */
  readonly context?: number;
  /** Adapters next to the weights; not part of `config.json`. */
  readonly lora?: LoraConfig;
  /** Storage of the linear weights next to adapters; float32 when absent. Not part of `config.json`. */
  readonly quantization?: Quantization;
  /** Frozen weights in the blocks of their file; none when absent. Not part of `config.json`. */
  readonly blocks?: BlockedWeights;
}

/** A decoder without any family's special features. */
export function plainFeatures(headDimension: number, rope: RopeConfig): DecoderFeatures {
  return {
    queryKeyValueBias: false,
    outputBias: false,
    feedForwardBias: false,
    queryKeyNorm: 'none',
    blockNorms: 'before',
    normsAddOne: false,
    activation: 'silu',
    fusedProjections: false,
    embeddingScale: 1,
    attentionScale: null,
    attentionSoftcap: null,
    logitSoftcap: null,
    rotaryDimension: headDimension,
    rope,
    localRope: null,
    attentionLayers: null,
    experts: null,
  };
}

export class ModelConfigError extends Error {
  override readonly name = 'ModelConfigError';
}

/** Sizes of a model from scratch; the defaults suit small policies. */
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
  readonly eosTokenId?: number;
  readonly padTokenId?: number;
}

/**
 * Config of a decoder from scratch: Qwen2's, under the type `seed_oss`, for which transformers has the same decoder and
 * keeps the tokenizer of the files.
 * @throws ModelConfigError when the sizes do not fit each other
 */
export function scratchConfig(sizes: ScratchSizes): DecoderConfig {
  const hiddenSize = sizes.hiddenSize ?? 64;
  const heads = sizes.heads ?? 4;
  return checkedConfig({
    architecture: 'seed_oss',
    vocabularySize: sizes.vocabularySize,
    hiddenSize,
    intermediateSize: sizes.intermediateSize ?? Math.round((hiddenSize * 5) / 2),
    layers: sizes.layers ?? 2,
    heads,
    keyValueHeads: sizes.keyValueHeads ?? heads,
    headDimension: hiddenSize / heads,
    maxPositions: sizes.maxPositions ?? 1024,
    normEpsilon: 1e-6,
    ...plainFeatures(hiddenSize / heads, { theta: sizes.ropeTheta ?? 1e4, scaling: { kind: 'none' } }),
    queryKeyValueBias: true,
    tiedEmbeddings: true,
    initializerRange: sizes.initializerRange ?? 0.02,
    bosTokenId: null,
    eosTokenId: sizes.eosTokenId ?? null,
    padTokenId: sizes.padTokenId ?? null,
    // Training with transformers has no dropout either.
    familyKeys: { attention_bias: true, attention_out_bias: false, mlp_bias: false, residual_dropout: 0 },
  });
}

/**
 * Largest sizes, several times those of any published model. Larger ones would fill the memory with tables of names and
 * angles before the weights are found to be missing.
 */
const MAX_SIZES = {
  vocabularySize: 2 ** 22,
  hiddenSize: 2 ** 17,
  intermediateSize: 2 ** 20,
  layers: 1024,
  heads: 2 ** 13,
  headDimension: 2 ** 13,
  maxPositions: 2 ** 27,
} as const;
/** Most experts of all layers together. */
const MAX_EXPERTS = 2 ** 17;

/** @throws ModelConfigError for an impossible size */
export function checkSize(key: keyof typeof MAX_SIZES, size: number): void {
  if (size > MAX_SIZES[key])
    throw new ModelConfigError(`${key} must be at most ${MAX_SIZES[key]}, got ${size}`);
}

/** @throws ModelConfigError when the sizes of a config are too large or do not fit each other */
export function checkedConfig(config: DecoderConfig): DecoderConfig {
  for (const key of ['vocabularySize', 'hiddenSize', 'intermediateSize', 'layers', 'heads'] as const) {
    if (!Number.isInteger(config[key]) || config[key] < 1) {
      throw new ModelConfigError(`${key} must be an integer of at least 1, got ${config[key]}`);
    }
  }
  for (const key of Object.keys(MAX_SIZES) as (keyof typeof MAX_SIZES)[]) checkSize(key, config[key]);
  const experts = config.layers * (config.experts?.count ?? 0);
  if (!(Number.isInteger(experts) && experts <= MAX_EXPERTS)) {
    throw new ModelConfigError(
      `the layers must have at most ${MAX_EXPERTS} experts together, got ${experts}`,
    );
  }
  if (!Number.isInteger(config.headDimension) || config.headDimension % 2 !== 0) {
    throw new ModelConfigError(
      `the size of a head must be an even integer, got ${config.headDimension} (hidden size ${config.hiddenSize}, ${config.heads} heads)`,
    );
  }
  const { rotaryDimension, headDimension } = config;
  if (rotaryDimension % 2 !== 0 || !(rotaryDimension > 0 && rotaryDimension <= headDimension)) {
    throw new ModelConfigError(
      `the part of a head that is turned must be an even number of at most ${headDimension}, got ${rotaryDimension}`,
    );
  }
  for (const { scaling } of [config.rope, ...(config.localRope === null ? [] : [config.localRope])]) {
    if (scaling.kind !== 'longrope') continue;
    for (const [key, factors] of [
      ['short_factor', scaling.shortFactors],
      ['long_factor', scaling.longFactors],
    ] as const) {
      if (factors.length === rotaryDimension / 2) continue;
      throw new ModelConfigError(`${key} must hold ${rotaryDimension / 2} numbers, got ${factors.length}`);
    }
  }
  if (config.heads % config.keyValueHeads !== 0) {
    throw new ModelConfigError(
      `the number of key-value heads must divide the ${config.heads} heads, got ${config.keyValueHeads}`,
    );
  }
  return config;
}

/** @throws ModelConfigError when the field, or its fallback, is not a finite number */
export function number(json: JsonObject, key: string, fallback?: number): number {
  const value = json[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new ModelConfigError(`${key} must be a number, got ${show(value)}`);
  }
  return value;
}

/** @throws ModelConfigError when the field exists and is not a finite number */
export function optionalNumber(json: JsonObject, key: string): number | null {
  return json[key] == null ? null : number(json, key);
}

/** @throws ModelConfigError when the field, or its fallback, is not an integer of at least 1 */
export function positiveInteger(json: JsonObject, key: string, fallback?: number): number {
  const value = number(json, key, fallback);
  if (!Number.isInteger(value) || value < 1) {
    throw new ModelConfigError(`${key} must be an integer of at least 1, got ${value}`);
  }
  return value;
}

/** @throws ModelConfigError when the field is not a list of numbers, or is missing and required */
export function numbers(json: JsonObject, key: string, fallback?: readonly number[]): readonly number[] {
  const value = json[key] ?? fallback;
  if (!Array.isArray(value) || value.some(entry => typeof entry !== 'number' || !Number.isFinite(entry))) {
    throw new ModelConfigError(`${key} must be a list of numbers, got ${show(value)}`);
  }
  return value;
}

/** A value for an error message. */
export function show(value: unknown): string {
  return JSON.stringify(value) ?? 'missing';
}
