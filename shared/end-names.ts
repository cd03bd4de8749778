/** Pattern of a well-formed name of an episode's end, which `info.ended_by` has. */
export const END_NAME = '^[a-z][a-z0-9_]{0,63}$';
const WELL_FORMED = new RegExp(END_NAME);

/** True for a well-formed name of an end: environments of others may return anything in `info.ended_by`. */
export const isEndName = (name: unknown): name is string =>
  typeof name === 'string' && WELL_FORMED.test(name);
