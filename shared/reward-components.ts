/** Named rewards of several steps added up; undefined where none has any. Entries that are no finite numbers are left out. */
export function sumComponents(
  infos: readonly { readonly [key: string]: unknown }[],
): Readonly<Record<string, number>> | undefined {
  const sums: Record<string, number> = {};
  for (const { rewards } of infos) {
    if (typeof rewards !== 'object' || rewards === null || Array.isArray(rewards)) continue;
    for (const [name, value] of Object.entries(rewards)) {
      if (typeof value === 'number' && Number.isFinite(value)) sums[name] = (sums[name] ?? 0) + value;
    }
  }
  return Object.keys(sums).length === 0 ? undefined : sums;
}
