import type { JsonObject } from '../../../shared/json.ts';
import { parseActivation } from '../activation.ts';
import { type DecoderConfig, ModelConfigError } from '../config.ts';
import { number, optionalNumber, positiveInteger, show } from '../json-fields.ts';
import { parseRope } from '../rope.ts';
import { type ModelFamily, slidingLayers } from './family.ts';

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
    queryKeyValueBias: json.attention_bias === true,
    outputBias: json.attention_bias === true,
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
