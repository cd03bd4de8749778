import type { ModelFamily } from './family.ts';
import { qwen2, windowsOf } from './qwen2.ts';

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
