import type { JsonObject } from '../../../shared/json.ts';

/** Types of the elements of a `Box` that are whole numbers, and of one that holds fractions. */
type BoxType = 'uint8' | 'int64' | 'float64';

/**
 * The spaces of Gymnasium that cross the wire, and how their values are written in JSON.
 *
 * - `Boolean` is `Discrete(2)` there; in JSON true or false.
 * - `Nullable` is `OneOf((Discrete(1), space))` there; in JSON null, which is (0, 0), or a value v of `space`, which is
 *   (1, v).
 * - `Box`, `MultiDiscrete` and `MultiBinary` are nested lists, a `Box` of the shape [] a number.
 * - `Tuple` and `Sequence` are lists.
 * - `Json` has no counterpart.
 */
export type Space =
  | {
      readonly type: 'Discrete';
      readonly n: number;
      readonly start?: number;
      readonly names?: readonly string[];
    }
  | {
      readonly type: 'Text';
      readonly minLength?: number;
      readonly maxLength: number;
      readonly pattern?: string;
      /** The only texts that occur. */
      readonly values?: readonly string[];
      /** Every character that occurs, each once; absent where any may. */
      readonly charset?: string;
    }
  | {
      readonly type: 'Box';
      /** Least and greatest value of every element; null where there is no bound. */
      readonly low: number | null;
      readonly high: number | null;
      readonly shape: readonly number[];
      readonly dtype: BoxType;
    }
  | {
      readonly type: 'MultiDiscrete';
      /** For every element, how many values it has, from 0. */
      readonly nvec: readonly number[];
    }
  | { readonly type: 'MultiBinary'; readonly shape: readonly number[] }
  | { readonly type: 'Boolean' }
  | { readonly type: 'Nullable'; readonly space: Space }
  | { readonly type: 'Tuple'; readonly spaces: readonly Space[] }
  | { readonly type: 'Sequence'; readonly space: Space }
  | { readonly type: 'Dict'; readonly spaces: { readonly [key: string]: Space } }
  | { readonly type: 'Json'; readonly schema: JsonObject };

/** Spaces of an environment's observations. */
export interface ObservationSpaces {
  /** Space of the format `text` and of the other formats that are text. */
  readonly text: Space;
  /** Space of the format `structured`. */
  readonly structured: Space;
}
