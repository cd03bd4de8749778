import { ModelConfigError } from '../config.ts';
import { numbers, positiveInteger } from '../json-fields.ts';
import { type ModelFamily, slidingLayers } from './family.ts';

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
      queryKeyValueBias: json.attention_bias === true,
      outputBias: json.attention_bias === true,
      feedForwardBias: json.mlp_bias === true,
      attentionLayers: turning.map((turns, layer) => ({
        window: windows?.[layer].window ?? null,
        rope: turns ? 'global' : 'none',
      })),
    };
  },
};
