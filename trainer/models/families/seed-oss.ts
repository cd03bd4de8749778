import type { ModelFamily } from './family.ts';

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
