import type { ModelFamily } from './family.ts';

export const llama: ModelFamily = {
  type: 'llama',
  className: 'LlamaForCausalLM',
  keys: ['attention_bias', 'mlp_bias'],
  features: json => ({
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_bias === true,
    feedForwardBias: json.mlp_bias === true,
  }),
};
