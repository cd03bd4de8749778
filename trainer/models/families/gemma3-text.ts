import type { JsonObject } from '../../../shared/json.ts';
import { ModelConfigError } from '../config.ts';
import { positiveInteger, show } from '../json-fields.ts';
import { parseRope } from '../rope.ts';
import { type ModelFamily, slidingLayers } from './family.ts';
import { gemma2, gemmaFeatures } from './gemma2.ts';

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
