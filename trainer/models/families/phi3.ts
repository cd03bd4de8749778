import { ModelConfigError } from '../config.ts';
import { number, positiveInteger } from '../json-fields.ts';
import { type ModelFamily, windowEverywhere } from './family.ts';

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
