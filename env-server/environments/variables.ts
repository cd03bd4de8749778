/** Variables by which an operator limits programs of DeepCoder, with their defaults. Flags: settings.ts. */
export const DEEPCODER_DEFAULTS = {
  RAGEN_DEEPCODER_MAX_CPU_SECONDS: 30,
  RAGEN_DEEPCODER_MAX_WALL_SECONDS: 60,
  RAGEN_DEEPCODER_MAX_TOTAL_SECONDS: 60,
  RAGEN_DEEPCODER_MAX_MEMORY_MB: 1024,
  RAGEN_DEEPCODER_MAX_OUTPUT_BYTES: 4_000_000,
  RAGEN_DEEPCODER_MAX_TESTS: 256,
  /** 0: one slot per processor. */
  RAGEN_DEEPCODER_SLOTS: 0,
  RAGEN_DEEPCODER_GUEST_SLOTS: 4,
  RAGEN_DEEPCODER_QUEUE_LENGTH: 1024,
  RAGEN_DEEPCODER_QUEUE_SECONDS: 120,
} as const;

export type DeepCoderVariable = keyof typeof DEEPCODER_DEFAULTS;

/** @throws Error where the variable is not a number */
export function readVariable(variable: DeepCoderVariable): number {
  const text = process.env[variable];
  if (text === undefined || text === '') return DEEPCODER_DEFAULTS[variable];
  const value = Number(text);
  if (!(value >= 0))
    throw new Error(`${variable} is ${JSON.stringify(text)}; expected a number of at least 0`);
  return value;
}

/** Path of `lean`; by default the one on PATH or in ~/.elan. */
export const LEAN_VARIABLE = 'RAGEN_LEAN';
/** Memory of one check, in MiB. */
export const LEAN_MEMORY_VARIABLE = 'RAGEN_LEAN_MEMORY_MB';
export const DEFAULT_LEAN_MEMORY_MB = 2048;
