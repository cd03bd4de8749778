import type { Json, JsonObject } from '../../shared/json.ts';
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
  /** Adapters beside the weights; not part of `config.json`. */
  readonly lora?: LoraConfig;
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
  return checked({
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

/**
 * Reads a Hugging Face `config.json`, in the spelling before transformers 5 (`rope_theta`, `rope_scaling`) and since
 * (`rope_parameters`).
 * @throws ModelConfigError naming the key, its value and what is supported
 */
export function parseConfig(json: JsonObject): DecoderConfig {
  const architecture = architectureOf(json);
  refuseSlidingWindow(json);
  const activation = json.hidden_act ?? 'silu';
  if (activation !== 'silu')
    throw new ModelConfigError(`hidden_act ${show(activation)}: only silu is supported`);
  if (json.quantization_config != null) {
    throw new ModelConfigError('quantization_config: weights must be stored as f32, f16 or bf16');
  }
  if (number(json, 'partial_rotary_factor', 1) !== 1) {
    throw new ModelConfigError(
      `partial_rotary_factor ${show(json.partial_rotary_factor)}: only rotation of whole heads, 1, is supported`,
    );
  }
  const hiddenSize = positiveInteger(json, 'hidden_size');
  const heads = positiveInteger(json, 'num_attention_heads');
  const attentionBias = json.attention_bias === true;
  const maxPositions = positiveInteger(json, 'max_position_embeddings', 2048);
  return checked({
    architecture,
    vocabularySize: positiveInteger(json, 'vocab_size'),
    hiddenSize,
    intermediateSize: positiveInteger(json, 'intermediate_size'),
    layers: positiveInteger(json, 'num_hidden_layers'),
    heads,
    keyValueHeads: positiveInteger(json, 'num_key_value_heads', heads),
    headDimension: positiveInteger(json, 'head_dim', hiddenSize / heads),
    maxPositions,
    normEpsilon: number(json, 'rms_norm_eps', 1e-6),
    rope: ropeOf(json, maxPositions),
    queryKeyValueBias: architecture === 'qwen2' || attentionBias,
    outputBias: architecture !== 'qwen2' && attentionBias,
    feedForwardBias: architecture === 'llama' && json.mlp_bias === true,
    queryKeyNorm: architecture === 'qwen3',
    tiedEmbeddings: json.tie_word_embeddings === true,
    initializerRange: number(json, 'initializer_range', 0.02),
    bosTokenId: tokenId(json, 'bos_token_id'),
    eosTokenId: Array.isArray(json.eos_token_id)
      ? json.eos_token_id.map(Number)
      : tokenId(json, 'eos_token_id'),
    padTokenId: tokenId(json, 'pad_token_id'),
  });
}

/** The `config.json` that {@link parseConfig} and transformers (old and new) read back. */
export function configToJson(config: DecoderConfig): JsonObject {
  const names = { qwen2: 'Qwen2ForCausalLM', qwen3: 'Qwen3ForCausalLM', llama: 'LlamaForCausalLM' };
  const { scaling, theta } = config.rope;
  const scalingJson: JsonObject =
    scaling.kind === 'none'
      ? { rope_type: 'default' }
      : scaling.kind === 'linear'
        ? { rope_type: 'linear', factor: scaling.factor }
        : {
            rope_type: 'llama3',
            factor: scaling.factor,
            low_freq_factor: scaling.lowFrequencyFactor,
            high_freq_factor: scaling.highFrequencyFactor,
            original_max_position_embeddings: scaling.originalMaxPositions,
          };
  const json: Record<string, Json> = {
    architectures: [names[config.architecture]],
    model_type: config.architecture,
    vocab_size: config.vocabularySize,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: config.keyValueHeads,
    head_dim: config.headDimension,
    max_position_embeddings: config.maxPositions,
    rms_norm_eps: config.normEpsilon,
    rope_theta: theta,
    rope_scaling: scaling.kind === 'none' ? null : scalingJson,
    rope_parameters: { rope_theta: theta, ...scalingJson },
    hidden_act: 'silu',
    attention_dropout: 0,
    tie_word_embeddings: config.tiedEmbeddings,
    initializer_range: config.initializerRange,
    bos_token_id: config.bosTokenId,
    eos_token_id: config.eosTokenId,
    pad_token_id: config.padTokenId,
    torch_dtype: 'float32',
    use_cache: true,
  };
  if (config.architecture !== 'qwen2') json.attention_bias = config.outputBias;
  if (config.architecture === 'llama') json.mlp_bias = config.feedForwardBias;
  return json;
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

function architectureOf(json: JsonObject): Architecture {
  const type = json.model_type;
  const known = ARCHITECTURES.find(name => name === type);
  if (known === undefined) {
    throw new ModelConfigError(
      `model_type ${show(type)} is not supported; supported: ${ARCHITECTURES.join(', ')}`,
    );
  }
  return known;
}

function refuseSlidingWindow(json: JsonObject): void {
  const layers = json.layer_types;
  const sliding = Array.isArray(layers) ? layers.find(kind => kind !== 'full_attention') : undefined;
  if (sliding !== undefined) {
    throw new ModelConfigError(`layer_types holds ${show(sliding)}: only full_attention is supported`);
  }
  if (json.use_sliding_window === true) {
    throw new ModelConfigError('use_sliding_window true: sliding-window attention is not supported');
  }
  if (json.model_type === 'llama' && json.sliding_window != null) {
    throw new ModelConfigError(
      `sliding_window ${show(json.sliding_window)}: only full attention is supported`,
    );
  }
}

function ropeOf(json: JsonObject, maxPositions: number): DecoderConfig['rope'] {
  const both = (json.rope_parameters ?? json.rope_scaling ?? {}) as JsonObject;
  const theta = number(both, 'rope_theta', number(json, 'rope_theta', 1e4));
  const kind = both.rope_type ?? both.type ?? 'default';
  switch (kind) {
    case 'default':
      return { theta, scaling: { kind: 'none' } };
    case 'linear':
      return { theta, scaling: { kind: 'linear', factor: number(both, 'factor') } };
    case 'llama3':
      return {
        theta,
        scaling: {
          kind: 'llama3',
          factor: number(both, 'factor'),
          lowFrequencyFactor: number(both, 'low_freq_factor'),
          highFrequencyFactor: number(both, 'high_freq_factor'),
          originalMaxPositions: number(both, 'original_max_position_embeddings', maxPositions),
        },
      };
    default:
      throw new ModelConfigError(
        `rope_type ${show(kind)} is not supported; supported: default, linear, llama3`,
      );
  }
}

function checked(config: DecoderConfig): DecoderConfig {
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

function number(json: JsonObject, key: string, fallback?: number): number {
  const value = json[key] ?? fallback;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new ModelConfigError(`${key} must be a number, got ${show(value)}`);
  }
  return value;
}

function positiveInteger(json: JsonObject, key: string, fallback?: number): number {
  const value = number(json, key, fallback);
  if (!Number.isInteger(value) || value < 1) {
    throw new ModelConfigError(`${key} must be an integer of at least 1, got ${value}`);
  }
  return value;
}

function tokenId(json: JsonObject, key: string): number | null {
  return json[key] == null ? null : number(json, key);
}

function show(value: unknown): string {
  return JSON.stringify(value) ?? 'missing';
}
