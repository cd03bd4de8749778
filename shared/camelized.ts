type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : Name;

/** An object with its keys in camelCase. */
export type Camelized<T> = { readonly [Key in keyof T as CamelCase<Key & string>]: T[Key] };

/**
 * A section of settings with the keys of our code: `clip_low` becomes `clipLow`. Values stay, because their keys may be
 * names that a user chose.
 */
export function camelized<T extends object>(section: T): Camelized<T> {
  const entries = Object.entries(section).map(([key, value]) => [
    key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(entries) as Camelized<T>;
}
