import { positiveInteger } from '../json-fields.ts';
import { type ModelFamily, windowEverywhere } from './family.ts';

export const mistral: ModelFamily = {
  type: 'mistral',
  className: 'MistralForCausalLM',
  defaults: { num_key_value_heads: 8, sliding_window: 4096, max_position_embeddings: 131_072 },
  keys: ['sliding_window'],
  features: (json, { layers }) => ({
    attentionLayers: windowEverywhere(
      layers,
      json.sliding_window === null ? null : positiveInteger(json, 'sliding_window'),
    ),
  }),
};
