/** True for a well-formed name of an episode's end, which `info.ended_by` has: environments of others may return anything there. */
export function isEndName(name: unknown): name is string {
  return typeof name === 'string' && /^[a-z][a-z0-9_]{0,63}$/.test(name);
}
