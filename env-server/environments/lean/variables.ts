/** Path of `lean`; by default the one on PATH or in ~/.elan. */
export const LEAN_VARIABLE = 'RAGEN_LEAN';
/** Memory of one check, in MiB. */
export const LEAN_MEMORY_VARIABLE = 'RAGEN_LEAN_MEMORY_MB';
export const DEFAULT_LEAN_MEMORY_MB = 2048;
