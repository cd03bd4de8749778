import type { Json, JsonObject } from '../../shared/json.ts';
import {
  ARCHITECTURES,
  type Architecture,
  checkedConfig,
  type DecoderConfig,
  ModelConfigError,
} from './config.ts';

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
  return checkedConfig({
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
