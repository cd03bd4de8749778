import type { JsonObject } from '../../../shared/json.ts';
import { type ExpertsConfig, type LayerAttention, ModelConfigError } from '../config.ts';
import { number, numbers, positiveInteger } from '../json-fields.ts';
import { type ModelFamily, slidingLayers, windowEverywhere } from './family.ts';

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
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_bias === true,
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
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_bias === true,
    queryKeyNorm: 'head',
    attentionLayers: windowEverywhere(
      layers,
      json.use_sliding_window === true ? positiveInteger(json, 'sliding_window', 4096) : null,
    ),
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
