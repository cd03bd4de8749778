import { isObject } from './json.ts';

/** Pattern of a valid name in `info.ended_by`. */
export const END_NAME = '^[a-z][a-z0-9_]{0,63}$';
const WELL_FORMED = new RegExp(END_NAME);

/** True for a valid end name: custom environments may return anything in `info.ended_by`. */
export const isEndName = (name: unknown): name is string =>
  typeof name === 'string' && WELL_FORMED.test(name);

/** Sums the named rewards of several steps; undefined where no step has any. Non-finite entries are left out. */
export function sumComponents(
  infos: readonly { readonly [key: string]: unknown }[],
): Readonly<Record<string, number>> | undefined {
  const sums = new Map<string, number>();
  for (const { rewards } of infos) {
    if (!isObject(rewards)) continue;
    for (const [name, value] of Object.entries(rewards)) {
      if (typeof value === 'number' && Number.isFinite(value)) sums.set(name, (sums.get(name) ?? 0) + value);
    }
  }
  return sums.size === 0 ? undefined : Object.fromEntries(sums);
}
