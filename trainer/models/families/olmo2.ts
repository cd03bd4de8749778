import type { ModelFamily } from './family.ts';

export const olmo2: ModelFamily = {
  type: 'olmo2',
  className: 'Olmo2ForCausalLM',
  defaults: { rms_norm_eps: 1e-5 },
  keys: ['attention_bias'],
  features: json => ({
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_bias === true,
    queryKeyNorm: 'width',
    blockNorms: 'after',
  }),
};
