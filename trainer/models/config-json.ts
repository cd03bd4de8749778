import { isObject, type Json, type JsonObject } from '../../shared/json.ts';
import {
  checkedConfig,
  checkSize,
  type DecoderConfig,
  ModelConfigError,
  number,
  optionalNumber,
  plainFeatures,
  positiveInteger,
  show,
} from './config.ts';
import {
  gemma2,
  gemma3Text,
  llama,
  type ModelFamily,
  mistral,
  olmo2,
  parseActivation,
  phi3,
  qwen2,
  qwen3,
  qwen3Moe,
  seedOss,
  smollm3,
} from './families.ts';
import type { WeightDtype } from './files/stored-numbers.ts';
import { parseRope, scalingToJson } from './rope.ts';

/**
 * Reads a Hugging Face `config.json`, in the spelling before transformers 5 (`rope_theta`, `rope_scaling`) or since
 * (`rope_parameters`).
 * @throws ModelConfigError naming the key, its value and what is supported
 */
export function parseConfig(file: unknown): DecoderConfig {
  if (!isObject(file)) throw new ModelConfigError('it must hold a JSON object');
  const family = familyOf(file.model_type);
  const json: JsonObject = { ...family.defaults, ...file };
  if (json.quantization_config != null) {
    throw new ModelConfigError('quantization_config: weights must be stored as f32, f16 or bf16');
  }
  const hiddenSize = positiveInteger(json, 'hidden_size');
  const heads = positiveInteger(json, 'num_attention_heads');
  const headDimension = positiveInteger(json, 'head_dim', hiddenSize / heads);
  const layers = positiveInteger(json, 'num_hidden_layers');
  checkSize('layers', layers);
  const both = (json.rope_parameters ?? json.rope_scaling ?? {}) as JsonObject;
  refuseOthersKeys({ partial_rotary_factor: both.partial_rotary_factor ?? null, ...json }, family);
  const rope = parseRope(json, isObject(both.full_attention) ? both.full_attention : both);
  const familyKeys = Object.fromEntries(Object.entries(file).filter(([key]) => family.keys.includes(key)));
  return checkedConfig({
    architecture: family.type,
    vocabularySize: positiveInteger(json, 'vocab_size'),
    hiddenSize,
    intermediateSize: positiveInteger(json, 'intermediate_size'),
    layers,
    heads,
    keyValueHeads: positiveInteger(json, 'num_key_value_heads', heads),
    headDimension,
    maxPositions: positiveInteger(json, 'max_position_embeddings', 2048),
    normEpsilon: number(json, 'rms_norm_eps', 1e-6),
    ...plainFeatures(headDimension, rope),
    activation: parseActivation('hidden_act', json.hidden_act ?? 'silu'),
    tiedEmbeddings: json.tie_word_embeddings === true,
    initializerRange: number(json, 'initializer_range', 0.02),
    bosTokenId: optionalNumber(json, 'bos_token_id'),
    eosTokenId: Array.isArray(json.eos_token_id)
      ? json.eos_token_id.map(Number)
      : optionalNumber(json, 'eos_token_id'),
    padTokenId: optionalNumber(json, 'pad_token_id'),
    familyKeys,
    ...family.features(json, { layers, headDimension, rope: both }),
  });
}

/** The `config.json` that {@link parseConfig} and transformers (old and new) read back. */
export function configToJson(config: DecoderConfig): JsonObject {
  const family = familyOf(config.architecture);
  const { scaling, theta } = config.rope;
  const scalingJson = scalingToJson(scaling);
  const both: { [key: string]: Json } = { rope_theta: theta, ...scalingJson };
  const rotated = config.rotaryDimension / config.headDimension;
  if (rotated !== 1) both.partial_rotary_factor = rotated;
  const json: { [key: string]: Json } = {
    architectures: [family.className],
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
    rope_parameters: both,
    hidden_act: { silu: 'silu', gelu: 'gelu', gelu_tanh: 'gelu_pytorch_tanh' }[config.activation],
    attention_dropout: 0,
    tie_word_embeddings: config.tiedEmbeddings,
    initializer_range: config.initializerRange,
    bos_token_id: config.bosTokenId,
    eos_token_id: config.eosTokenId,
    pad_token_id: config.padTokenId,
    torch_dtype: 'float32',
    use_cache: true,
    ...config.familyKeys,
  };
  if (rotated !== 1) json.partial_rotary_factor = rotated;
  if (config.localRope !== null) {
    json.rope_local_base_freq = config.localRope.theta;
    json.rope_parameters = {
      full_attention: both,
      sliding_attention: { rope_theta: config.localRope.theta, ...scalingToJson(config.localRope.scaling) },
    };
  }
  return json;
}

/** Keys that transformers 5 needs as floats: it rejects 30 in place of 30.0. */
const FLOATS = [
  ...['attn_logit_softcapping', 'final_logit_softcapping', 'router_aux_loss_coef', 'rms_norm_eps'],
  ...['initializer_range', 'rope_theta', 'partial_rotary_factor', 'factor'],
];
const WHOLE_FLOAT = new RegExp(`^( *"(?:${FLOATS.join('|')})": -?\\d+)(,?)$`, 'gm');

/** The text of {@link configToJson}, for weights of a type as torch names it. */
export function configToText(config: DecoderConfig, dtype: WeightDtype = 'float32'): string {
  const json = { ...configToJson(config), torch_dtype: dtype };
  return `${JSON.stringify(json, null, 2).replaceAll(WHOLE_FLOAT, '$1.0$2')}\n`;
}

function familyOf(type: Json | undefined): ModelFamily {
  const known = FAMILIES.find(family => family.type === type);
  if (known !== undefined) return known;
  throw new ModelConfigError(
    `model_type ${show(type)} is not supported; supported: ${FAMILIES.map(({ type }) => type).join(', ')}`,
  );
}

/** Keys that change the result, with the values that leave the common decoder unchanged. */
const COMMON_VALUES: Readonly<Record<string, (value: Json) => boolean>> = {
  attention_bias: value => value === false,
  mlp_bias: value => value === false,
  sliding_window: () => false,
  layer_types: value => Array.isArray(value) && value.every(kind => kind === 'full_attention'),
  use_sliding_window: value => value === false,
  partial_rotary_factor: value => value === 1,
  hidden_activation: () => false,
  use_bidirectional_attention: value => value === false,
  attn_logit_softcapping: () => false,
  final_logit_softcapping: () => false,
};

/** @throws ModelConfigError naming a key that this family has not, with a value that would compute something else */
function refuseOthersKeys(json: JsonObject, { type, keys, ignored = [] }: ModelFamily): void {
  for (const [key, isCommon] of Object.entries(COMMON_VALUES)) {
    const value = json[key];
    if (value == null || keys.includes(key) || ignored.includes(key) || isCommon(value)) continue;
    throw new ModelConfigError(`${key} ${show(value)} is not supported for model_type ${type}`);
  }
}

/** Every family of models, one a line. */
export const FAMILIES: readonly ModelFamily[] = [
  qwen2,
  qwen3,
  llama,
  mistral,
  gemma2,
  gemma3Text,
  phi3,
  smollm3,
  olmo2,
  qwen3Moe,
  seedOss,
];
