import type { JsonObject } from '../../shared/json.ts';
import {
  type Activation,
  type DecoderConfig,
  type ExpertsConfig,
  type LayerAttention,
  ModelConfigError,
  number,
  numbers,
  optionalNumber,
  positiveInteger,
  show,
} from './config.ts';
import { parseRope } from './rope.ts';

/** Differences of a family from the common decoder. */
export interface ModelFamily {
  /** `model_type` of its `config.json`. */
  readonly type: string;
  /** Its class in transformers, as `architectures` names it. */
  readonly className: string;
  /** transformers' defaults of keys that its `config.json` leaves out. */
  readonly defaults?: JsonObject;
  /** Keys that only this family, or not every family, reads; they are written back unchanged. */
  readonly keys: readonly string[];
  /** Keys that other families do not allow, but that change nothing here or are written from the config. */
  readonly ignored?: readonly string[];
  /**
   * @param json the config, with the defaults
   * @throws ModelConfigError naming the key that is not supported
   */
  features(json: JsonObject, common: CommonConfig): Partial<DecoderConfig>;
}

/** Part of a config that is read before the family's keys. */
interface CommonConfig {
  readonly layers: number;
  readonly headDimension: number;
  /** `rope_parameters` or `rope_scaling`, as they are. */
  readonly rope: JsonObject;
}

/** The `sliding_window` of the config in all layers; null where it has none. */
function windowEverywhere(json: JsonObject, layers: number): readonly LayerAttention[] | null {
  if (json.sliding_window == null) return null;
  const window = positiveInteger(json, 'sliding_window');
  return Array.from({ length: layers }, () => ({ window, rope: 'global' }));
}

/** Biases of all projections of the attention, where the config has them. */
function attentionBiases({ attention_bias }: JsonObject) {
  return { queryKeyValueBias: attention_bias === true, outputBias: attention_bias === true };
}

/**
 * Layers of `layer_types`: those of `sliding_attention` see `sliding_window` positions.
 * @param pattern the kind of each layer where the config does not list them
 * @param slidingRope rotary settings of sliding layers
 * @returns null where no layer slides
 * @throws ModelConfigError for another kind of layer, or another number of them
 */
function slidingLayers(
  json: JsonObject,
  layers: number,
  pattern: (layer: number) => 'sliding_attention' | 'full_attention',
  slidingRope: LayerAttention['rope'] = 'global',
): readonly LayerAttention[] | null {
  const kinds = json.layer_types ?? Array.from({ length: layers }, (_, layer) => pattern(layer));
  if (!Array.isArray(kinds) || kinds.length !== layers) {
    throw new ModelConfigError(`layer_types must list the kinds of ${layers} layers, got ${show(kinds)}`);
  }
  const other = kinds.find(kind => kind !== 'sliding_attention' && kind !== 'full_attention');
  if (other !== undefined) {
    throw new ModelConfigError(
      `layer_types holds ${show(other)}; supported: full_attention, sliding_attention`,
    );
  }
  if (!kinds.includes('sliding_attention')) return null;
  const window = positiveInteger(json, 'sliding_window');
  return kinds.map(kind =>
    kind === 'sliding_attention' ? { window, rope: slidingRope } : { window: null, rope: 'global' },
  );
}

export const llama: ModelFamily = {
  type: 'llama',
  className: 'LlamaForCausalLM',
  keys: ['attention_bias', 'mlp_bias'],
  features: json => ({
    ...attentionBiases(json),
    feedForwardBias: json.mlp_bias === true,
  }),
};

export const mistral: ModelFamily = {
  type: 'mistral',
  className: 'MistralForCausalLM',
  defaults: { num_key_value_heads: 8, sliding_window: 4096, max_position_embeddings: 131_072 },
  keys: ['sliding_window'],
  features: (json, { layers }) => ({
    attentionLayers: windowEverywhere(json, layers),
  }),
};

export const olmo2: ModelFamily = {
  type: 'olmo2',
  className: 'Olmo2ForCausalLM',
  defaults: { rms_norm_eps: 1e-5 },
  keys: ['attention_bias'],
  features: json => ({
    ...attentionBiases(json),
    queryKeyNorm: 'width',
    blockNorms: 'after',
  }),
};

/** Phi-3, Phi-3.5, Phi-4 and Phi-4-mini. */
export const phi3: ModelFamily = {
  type: 'phi3',
  className: 'Phi3ForCausalLM',
  defaults: { max_position_embeddings: 4096, original_max_position_embeddings: 4096, rms_norm_eps: 1e-5 },
  keys: ['sliding_window', 'original_max_position_embeddings'],
  ignored: ['partial_rotary_factor'],
  features(json, { layers, headDimension, rope }) {
    const kind = rope.rope_type ?? rope.type ?? 'default';
    if (kind !== 'default' && kind !== 'longrope' && kind !== 'su') {
      throw new ModelConfigError(
        `rope_type ${JSON.stringify(kind)} is not supported for model_type phi3; supported: default, longrope`,
      );
    }
    const factor = number(rope, 'partial_rotary_factor', number(json, 'partial_rotary_factor', 1));
    return {
      fusedProjections: true,
      rotaryDimension: Math.trunc(headDimension * factor),
      attentionLayers: windowEverywhere(json, layers),
    };
  },
};

export const smollm3: ModelFamily = {
  type: 'smollm3',
  className: 'SmolLM3ForCausalLM',
  defaults: {
    num_key_value_heads: 4,
    max_position_embeddings: 32_768,
    rope_theta: 2e6,
    tie_word_embeddings: true,
  },
  keys: [
    ...['attention_bias', 'mlp_bias', 'use_sliding_window', 'sliding_window', 'layer_types'],
    ...['no_rope_layers', 'no_rope_layer_interval', 'max_window_layers'],
  ],
  features(json, { layers }) {
    const interval = positiveInteger(json, 'no_rope_layer_interval', 4);
    const turning = numbers(
      json,
      'no_rope_layers',
      Array.from({ length: layers }, (_, layer) => ((layer + 1) % interval === 0 ? 0 : 1)),
    );
    if (turning.length !== layers) {
      throw new ModelConfigError(`no_rope_layers must list ${layers} layers, got ${turning.length}`);
    }
    const slides = json.use_sliding_window === true && json.sliding_window != null;
    const windows = slides
      ? slidingLayers(json, layers, layer => (turning[layer] ? 'full_attention' : 'sliding_attention'))
      : null;
    return {
      ...attentionBiases(json),
      feedForwardBias: json.mlp_bias === true,
      attentionLayers: turning.map((turns, layer) => ({
        window: windows?.[layer].window ?? null,
        rope: turns ? 'global' : 'none',
      })),
    };
  },
};

export const qwen2: ModelFamily = {
  type: 'qwen2',
  className: 'Qwen2ForCausalLM',
  keys: ['use_sliding_window', 'sliding_window', 'max_window_layers', 'layer_types'],
  features: (json, { layers }) => ({
    queryKeyValueBias: true,
    attentionLayers: windowsOf(json, layers),
  }),
};

/** Sliding windows as Qwen2 and Qwen3 have them: off unless `use_sliding_window`, then from `max_window_layers` on. */
function windowsOf(json: JsonObject, layers: number): readonly LayerAttention[] | null {
  const slides = json.use_sliding_window === true && json.sliding_window != null;
  if (!slides && Array.isArray(json.layer_types) && json.layer_types.includes('sliding_attention')) {
    throw new ModelConfigError(
      'layer_types holds "sliding_attention", and use_sliding_window is off: the model has no window',
    );
  }
  const first = number(json, 'max_window_layers', 28);
  return slidingLayers(json, layers, layer =>
    slides && layer >= first ? 'sliding_attention' : 'full_attention',
  );
}

export const qwen3: ModelFamily = {
  type: 'qwen3',
  className: 'Qwen3ForCausalLM',
  keys: [...qwen2.keys, 'attention_bias'],
  features: (json, { layers }) => ({
    ...attentionBiases(json),
    queryKeyNorm: 'head',
    attentionLayers: windowsOf(json, layers),
  }),
};

export const qwen3Moe: ModelFamily = {
  type: 'qwen3_moe',
  className: 'Qwen3MoeForCausalLM',
  keys: [
    ...['use_sliding_window', 'sliding_window', 'attention_bias', 'decoder_sparse_step', 'mlp_only_layers'],
    ...['moe_intermediate_size', 'num_experts', 'num_local_experts', 'num_experts_per_tok', 'norm_topk_prob'],
    ...['router_aux_loss_coef', 'output_router_logits', 'max_window_layers'],
  ],
  features: (json, { layers }) => ({
    ...attentionBiases(json),
    queryKeyNorm: 'head',
    attentionLayers:
      json.use_sliding_window === true
        ? windowEverywhere({ ...json, sliding_window: json.sliding_window ?? 4096 }, layers)
        : null,
    experts: expertsOf(json, layers),
  }),
};

function expertsOf(json: JsonObject, layers: number): ExpertsConfig | null {
  const count = number(json, 'num_experts', number(json, 'num_local_experts', 128));
  if (count === 0) return null;
  const perToken = positiveInteger(json, 'num_experts_per_tok', 8);
  if (perToken > count) {
    throw new ModelConfigError(`num_experts_per_tok must be at most the ${count} experts, got ${perToken}`);
  }
  const step = positiveInteger(json, 'decoder_sparse_step', 1);
  const plain = numbers(json, 'mlp_only_layers', []);
  return {
    count,
    perToken,
    normalized: json.norm_topk_prob === true,
    intermediateSize: positiveInteger(json, 'moe_intermediate_size', 768),
    layers: Array.from({ length: layers }, (_, layer) => !plain.includes(layer) && (layer + 1) % step === 0),
  };
}

/** Seed-OSS, and models from scratch: Qwen2's decoder under a type for which transformers keeps the folder's tokenizer. */
export const seedOss: ModelFamily = {
  type: 'seed_oss',
  className: 'SeedOssForCausalLM',
  defaults: {
    num_key_value_heads: 8,
    head_dim: 128,
    max_position_embeddings: 524_288,
    attention_bias: true,
  },
  keys: ['attention_bias', 'attention_out_bias', 'mlp_bias', 'residual_dropout'],
  features: json => ({
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_out_bias === true,
    feedForwardBias: json.mlp_bias === true,
  }),
};

export const gemma2: ModelFamily = {
  type: 'gemma2',
  className: 'Gemma2ForCausalLM',
  defaults: {
    num_key_value_heads: 4,
    head_dim: 256,
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
    sliding_window: 4096,
    query_pre_attn_scalar: 256,
    attn_logit_softcapping: 50,
    final_logit_softcapping: 30,
  },
  keys: [
    ...['hidden_activation', 'attention_bias', 'query_pre_attn_scalar', 'sliding_window', 'layer_types'],
    ...['attn_logit_softcapping', 'final_logit_softcapping', 'use_bidirectional_attention'],
  ],
  features: (json, { layers }) => ({
    ...gemmaFeatures(json),
    attentionSoftcap: optionalNumber(json, 'attn_logit_softcapping'),
    attentionLayers: slidingLayers(json, layers, layer =>
      layer % 2 === 0 ? 'sliding_attention' : 'full_attention',
    ),
  }),
};

/** Features that Gemma 2 and Gemma 3 share. */
function gemmaFeatures(json: JsonObject): Partial<DecoderConfig> {
  if (json.use_bidirectional_attention === true) {
    throw new ModelConfigError(
      `use_bidirectional_attention ${show(true)} is not supported: a decoder sees what is before it`,
    );
  }
  return {
    ...attentionBiases(json),
    blockNorms: 'both',
    normsAddOne: true,
    // `hidden_act` of old files says gelu and is ignored.
    activation: parseActivation('hidden_activation', json.hidden_activation ?? 'gelu_pytorch_tanh'),
    embeddingScale: Math.sqrt(positiveInteger(json, 'hidden_size')),
    attentionScale: 1 / Math.sqrt(number(json, 'query_pre_attn_scalar')),
    logitSoftcap: optionalNumber(json, 'final_logit_softcapping'),
  };
}

export const gemma3Text: ModelFamily = {
  type: 'gemma3_text',
  className: 'Gemma3ForCausalLM',
  defaults: {
    num_key_value_heads: 4,
    head_dim: 256,
    max_position_embeddings: 131_072,
    tie_word_embeddings: true,
    sliding_window: 4096,
    query_pre_attn_scalar: 256,
    rope_theta: 1e6,
  },
  keys: [...gemma2.keys, 'sliding_window_pattern', '_sliding_window_pattern'],
  features(json, { layers, rope }) {
    if (json.attn_logit_softcapping != null) {
      throw new ModelConfigError(
        `attn_logit_softcapping ${show(json.attn_logit_softcapping)}: Gemma 3 has no caps on attention; leave it out`,
      );
    }
    const period = positiveInteger(json, 'sliding_window_pattern', 6);
    const local = (rope.sliding_attention ?? {}) as JsonObject;
    return {
      ...gemmaFeatures(json),
      queryKeyNorm: 'head',
      localRope: parseRope({ ...json, rope_theta: json.rope_local_base_freq ?? 1e4 }, local),
      attentionLayers: slidingLayers(
        json,
        layers,
        layer => ((layer + 1) % period === 0 ? 'full_attention' : 'sliding_attention'),
        'local',
      ),
    };
  },
};

/** Names in `config.json`; `gelu_new` and `gelu_pytorch_tanh` are the same function. */
const NAMES: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
};

/** @throws ModelConfigError naming the key when the activation is not supported */
export function parseActivation(key: string, name: unknown): Activation {
  const known = typeof name === 'string' && Object.hasOwn(NAMES, name) ? NAMES[name] : undefined;
  if (known !== undefined) return known;
  throw new ModelConfigError(
    `${key} ${JSON.stringify(name)} is not supported; supported: ${Object.keys(NAMES).join(', ')}`,
  );
}
