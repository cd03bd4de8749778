/** Pattern of a valid name in `info.ended_by`. */
export const END_NAME = '^[a-z][a-z0-9_]{0,63}$';
const WELL_FORMED = new RegExp(END_NAME);

/** True for a valid end name: custom environments may return anything in `info.ended_by`. */
export const isEndName = (name: unknown): name is string =>
  typeof name === 'string' && WELL_FORMED.test(name);
