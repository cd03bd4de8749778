import type { JsonObject } from '../../../shared/json.ts';
import { type LayerAttention, ModelConfigError } from '../config.ts';
import { number } from '../json-fields.ts';
import { type ModelFamily, slidingLayers } from './family.ts';

export const qwen2: ModelFamily = {
  type: 'qwen2',
  className: 'Qwen2ForCausalLM',
  keys: ['use_sliding_window', 'sliding_window', 'max_window_layers', 'layer_types'],
  features: (json, { layers }) => ({
    queryKeyValueBias: true,
    attentionLayers: windowsOf(json, layers),
  }),
};

/** Sliding windows as Qwen2 and Qwen3 have them: off unless `use_sliding_window`, then from `max_window_layers` on. */
export function windowsOf(json: JsonObject, layers: number): readonly LayerAttention[] | null {
  const slides = json.use_sliding_window === true && json.sliding_window != null;
  if (!slides && Array.isArray(json.layer_types) && json.layer_types.includes('sliding_attention')) {
    throw new ModelConfigError(
      'layer_types holds "sliding_attention", and use_sliding_window is off: the model has no window',
    );
  }
  const first = number(json, 'max_window_layers', 28);
  return slidingLayers(json, layers, layer =>
    slides && layer >= first ? 'sliding_attention' : 'full_attention',
  );
}
