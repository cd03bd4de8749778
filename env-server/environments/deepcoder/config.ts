import { availableParallelism } from 'node:os';
import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { dataFile, indexOption } from '../core/datasets/question.ts';
import { InvalidConfig } from '../core/environment.ts';
import { integerSetting, numberSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';
import { type DeepCoderVariable, readVariable } from '../variables.ts';
import type { QueueLimits } from './sandbox/pool.ts';
import type { JobLimits } from './sandbox/sandbox.ts';
import { TASKS } from './tasks.ts';

type Limit = keyof JobLimits;

const CEILINGS: { readonly [limit in Limit]: DeepCoderVariable } = {
  cpu_s: 'RAGEN_DEEPCODER_MAX_CPU_SECONDS',
  wall_s: 'RAGEN_DEEPCODER_MAX_WALL_SECONDS',
  total_s: 'RAGEN_DEEPCODER_MAX_TOTAL_SECONDS',
  memory_mb: 'RAGEN_DEEPCODER_MAX_MEMORY_MB',
  output_bytes: 'RAGEN_DEEPCODER_MAX_OUTPUT_BYTES',
};
const MAX_TESTS: DeepCoderVariable = 'RAGEN_DEEPCODER_MAX_TESTS';
const LIMITS = Object.keys(CEILINGS) as Limit[];

/** Highest limits that players may set on this server. */
export function ceilings(): { readonly [limit in Limit | 'tests']: number } {
  const limits = Object.fromEntries(LIMITS.map(limit => [limit, readVariable(CEILINGS[limit])]));
  return { ...(limits as { [limit in Limit]: number }), tests: readVariable(MAX_TESTS) };
}

/** @throws InvalidConfig naming the first exceeded ceiling; a default above a ceiling is lowered to it */
export function checkCeilings(config: DeepCoderConfig): void {
  for (const limit of LIMITS) {
    const [value, most] = [config[limit], readVariable(CEILINGS[limit])];
    const { default: standard } = configSchema.properties[limit] as { default?: number };
    if (value > most && value !== standard) {
      throw new InvalidConfig(
        `/${limit}`,
        `${limit} is ${value}; the ceiling of this server is ${most}, which its operator sets with ${CEILINGS[limit]}`,
      );
    }
  }
}

/** Why this many tests are refused; undefined where they are not. */
export function tooManyTests(count: number): string | undefined {
  const most = readVariable(MAX_TESTS);
  if (count <= most) return undefined;
  return `there are ${count} tests; the ceiling of this server is ${most}, which its operator sets with ${MAX_TESTS}`;
}

/** The limits of an episode. */
export function limitsOf(config: DeepCoderConfig): { readonly [limit in Limit]: number } {
  const most = ceilings();
  const limits = Object.fromEntries(LIMITS.map(limit => [limit, Math.min(config[limit], most[limit])]));
  return limits as { [limit in Limit]: number };
}

/** Limits of the queue of programs that wait for this machine. */
export function queueLimits(): QueueLimits {
  return {
    slots: readVariable('RAGEN_DEEPCODER_SLOTS') || availableParallelism(),
    guestSlots: readVariable('RAGEN_DEEPCODER_GUEST_SLOTS'),
    queueLength: readVariable('RAGEN_DEEPCODER_QUEUE_LENGTH'),
    queueSeconds: readVariable('RAGEN_DEEPCODER_QUEUE_SECONDS'),
  };
}

export const MAX_STATEMENT_LENGTH = 100_000;

export const configSchema = closed({
  split: splitSchema,
  data: dataFile(
    'File of tasks instead of the shipped ones: .jsonl, .json or .parquet in the form of DeepCoder (problem, tests, starter_code, metadata).',
  ),
  cpu_s: integerSetting(4, [1, 60], 'Processor seconds for one test.'),
  wall_s: numberSetting(6, [0.1, 120], 'Seconds for one test.'),
  total_s: numberSetting(30, [0.1, 600], 'Seconds for all tests of a program.'),
  memory_mb: integerSetting(256, [64, 4096], 'Memory of a test, in MiB.'),
  output_bytes: integerSetting(1_000_000, [100, 64_000_000], 'What a test may print.'),
});

const jsonValue = Type.Unsafe<Json>({});

export const optionsSchema = closed({
  name: Type.Optional(
    Type.Union(
      TASKS.map(task => Type.Literal(task.name)),
      { description: 'A shipped task.' },
    ),
  ),
  index: indexOption('Task within the split, from 0.'),
  statement: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_STATEMENT_LENGTH,
      description: 'A task of your own; goes with tests.',
    }),
  ),
  entry: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z_][A-Za-z0-9_]*$',
      maxLength: 100,
      description: 'The function that its tests call.',
    }),
  ),
  tests: Type.Optional(
    Type.Array(
      Type.Union([
        closed({ input: Type.String(), output: Type.String() }),
        closed({ arguments: Type.Array(jsonValue), result: jsonValue }),
      ]),
      {
        minItems: 1,
        maxItems: 1000,
        description: 'Input and output, or arguments and result where there is an entry.',
      },
    ),
  ),
});

export type DeepCoderConfig = Static<typeof configSchema>;
export type DeepCoderOptions = Static<typeof optionsSchema>;
