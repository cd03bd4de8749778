import type { JsonObject } from '../../../shared/json.ts';
import { type ExpertsConfig, ModelConfigError } from '../config.ts';
import { number, numbers, positiveInteger } from '../json-fields.ts';
import { type ModelFamily, windowEverywhere } from './family.ts';

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
