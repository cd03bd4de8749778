import { Type } from '../../../shared/schema/type.ts';

type Range = readonly [least: number, most?: number];

const bounded = (fallback: number, [minimum, maximum]: Range, description: string) => ({
  default: fallback,
  minimum,
  ...(maximum !== undefined && { maximum }),
  description,
});

/** A whole number of a configuration or of options, with its default. */
export const integerSetting = (fallback: number, range: Range, description: string) =>
  Type.Integer(bounded(fallback, range, description));

export const numberSetting = (fallback: number, range: Range, description: string) =>
  Type.Number(bounded(fallback, range, description));

/** One of several texts or numbers. */
export const choiceSetting = <const T extends string | number>(
  values: readonly T[],
  fallback: NoInfer<T>,
  description: string,
) =>
  Type.Unsafe<T>(
    Type.Union(
      values.map(value => Type.Literal(value)),
      { default: fallback, description },
    ),
  );
