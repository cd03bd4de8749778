import { ModelConfigError } from '../config.ts';
import { number, numbers, positiveInteger } from '../json-fields.ts';
import { type ModelFamily, slidingLayers, windowEverywhere } from './family.ts';

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
      attentionLayers: windowEverywhere(
        layers,
        json.sliding_window == null ? null : positiveInteger(json, 'sliding_window'),
      ),
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
