import type { JsonObject } from './json.ts';

/** The spaces of Gymnasium that cross the wire. */
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
    }
  | { readonly type: 'Dict'; readonly spaces: { readonly [key: string]: Space } }
  | { readonly type: 'Json'; readonly schema: JsonObject };
