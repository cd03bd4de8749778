import type { JsonObject } from '../../../shared/json.ts';
import { type DecoderConfig, type LayerAttention, ModelConfigError } from '../config.ts';
import { positiveInteger, show } from '../json-fields.ts';

/** Differences of a family from the common decoder. */
export interface ModelFamily {
  /** `model_type` of its `config.json`. */
  readonly type: string;
  /** Its class in transformers, as `architectures` names it. */
  readonly className: string;
  /** transformers' defaults of keys that its `config.json` leaves out. */
  readonly defaults?: JsonObject;
  /** Keys that only this family, or not every family, reads; they are written back unchanged. */
  readonly keys: readonly string[];
  /** Keys that other families do not allow, but that change nothing here or are written from the config. */
  readonly ignored?: readonly string[];
  /**
   * @param json the config, with the defaults
   * @throws ModelConfigError naming the key that is not supported
   */
  features(json: JsonObject, common: CommonConfig): Partial<DecoderConfig>;
}

/** Part of a config that is read before the family's keys. */
interface CommonConfig {
  readonly layers: number;
  readonly headDimension: number;
  /** `rope_parameters` or `rope_scaling`, as they are. */
  readonly rope: JsonObject;
}

/** The same window in all layers. */
export function windowEverywhere(layers: number, window: number | null): readonly LayerAttention[] | null {
  if (window === null) return null;
  return Array.from({ length: layers }, () => ({ window, rope: 'global' }));
}

/**
 * Layers of `layer_types`: those of `sliding_attention` see `sliding_window` positions.
 * @param pattern the kind of each layer where the config does not list them
 * @param slidingRope rotary settings of sliding layers
 * @returns null where no layer slides
 * @throws ModelConfigError for another kind of layer, or another number of them
 */
export function slidingLayers(
  json: JsonObject,
  layers: number,
  pattern: (layer: number) => 'sliding_attention' | 'full_attention',
  slidingRope: LayerAttention['rope'] = 'global',
): readonly LayerAttention[] | null {
  const kinds = json.layer_types ?? Array.from({ length: layers }, (_, layer) => pattern(layer));
  if (!Array.isArray(kinds) || kinds.length !== layers) {
    throw new ModelConfigError(`layer_types must list the kinds of ${layers} layers, got ${show(kinds)}`);
  }
  const other = kinds.find(kind => kind !== 'sliding_attention' && kind !== 'full_attention');
  if (other !== undefined) {
    throw new ModelConfigError(
      `layer_types holds ${show(other)}; supported: full_attention, sliding_attention`,
    );
  }
  if (!kinds.includes('sliding_attention')) return null;
  const window = positiveInteger(json, 'sliding_window');
  return kinds.map(kind =>
    kind === 'sliding_attention' ? { window, rope: slidingRope } : { window: null, rope: 'global' },
  );
}
