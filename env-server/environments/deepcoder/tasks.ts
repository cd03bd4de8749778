import { availableParallelism } from 'node:os';
import type { Static } from 'typebox';
import { isObject, type Json, type JsonObject, jsonOf } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { InvalidField, shippedRecords, textField } from '../core/datasets/records.ts';
import { dataFile, indexOption } from '../core/datasets/word-problems.ts';
import { InvalidConfig } from '../core/environment.ts';
import { integerSetting, numberSetting } from '../core/settings.ts';
import { splitSchema } from '../core/splits.ts';
import { type DeepCoderVariable, readVariable } from '../variables.ts';
import type { QueueLimits } from './sandbox/pool.ts';
import type { JobLimits } from './sandbox/sandbox.ts';

/** A test of a program: what it reads and prints, or what its function is given and returns. */
export type Test =
  | { readonly kind: 'stdin'; readonly input: string; readonly output: string }
  | { readonly kind: 'call'; readonly arguments: readonly Json[]; readonly result: Json };

export type Task = {
  readonly name: string;
  readonly statement: string;
  /** Starter code; empty where there is none. */
  readonly starter: string;
  /** The function that tests call, perhaps a method of a class `Solution`; null where programs read and print. */
  readonly entry: string | null;
  readonly tests: readonly Test[];
  /** A program that passes, where one is known. */
  readonly solution: string;
};

/** Nesting depth of arguments and results. */
export const DEEPEST_VALUE = 64;

/** True if lists and objects are nested more than `levels` deep. */
export function isDeeperThan(value: Json, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  return Object.values(value).some(part => isDeeperThan(part, levels - 1));
}

/** The shipped tasks, in the order in which seeds number them: a new one comes last. Their solutions pass their tests. */
export const TASKS: readonly Task[] = shippedRecords(new URL('./tasks.jsonl', import.meta.url));

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

/**
 * A record of the public DeepCoder data (agentica-org/DeepCoder-Preview-Dataset): `problem` (or `question`) and `tests`
 * (or `ground_truth`), a JSON text or value: a list of `{input, output, testtype}` (LiveCodeBench) or of
 * `{input, output, type, fn_name?}` (PrimeIntellect), or `{inputs, outputs, fn_name?}` (TACO).
 * @throws InvalidField
 */
export function readTask(record: JsonObject): Task {
  const statement = textField(
    record,
    record.problem === undefined && record.question !== undefined ? 'question' : 'problem',
  );
  const field = record.tests === undefined && record.ground_truth !== undefined ? 'ground_truth' : 'tests';
  const tests = parsed(record[field], field);
  const metadata =
    record.metadata === undefined || record.metadata === null ? {} : parsed(record.metadata, 'metadata');
  const named = isObject(metadata) && typeof metadata.func_name === 'string' ? metadata.func_name : null;
  const starter = typeof record.starter_code === 'string' ? record.starter_code : '';
  const solution = firstText(record.solutions ?? record.solution);
  const { entry, list } = isObject(tests) ? pairedTests(tests, field) : listedTests(tests, field, named);
  if (list.length === 0) throw new InvalidField(field, 'expected at least one test');
  const deep = list.findIndex(
    test => test.kind === 'call' && isDeeperThan([test.arguments, test.result], DEEPEST_VALUE + 1),
  );
  if (deep >= 0) throw new InvalidField(field, `test ${deep} is nested deeper than ${DEEPEST_VALUE} levels`);
  return {
    name: typeof record.name === 'string' ? record.name : '',
    statement,
    starter,
    entry,
    tests: list,
    solution,
  };
}

function parsed(value: Json | undefined, field: string): Json {
  if (typeof value !== 'string') return value ?? null;
  return jsonOf(value, () => new InvalidField(field, 'is not JSON')) as Json;
}

function firstText(value: Json | undefined): string {
  const first = Array.isArray(value) ? value[0] : value;
  return typeof first === 'string' ? first : '';
}

interface ReadTask {
  readonly entry: string | null;
  readonly list: Test[];
}

/** `{inputs: […], outputs: […], fn_name?}`, as TACO and APPS write tests. */
function pairedTests({ inputs, outputs, fn_name }: JsonObject, field: string): ReadTask {
  if (!Array.isArray(inputs) || !Array.isArray(outputs) || inputs.length !== outputs.length) {
    throw new InvalidField(field, 'expected inputs and outputs, two lists of the same length');
  }
  const entry = typeof fn_name === 'string' ? fn_name : null;
  const list = inputs.map((input, index): Test => {
    const output = outputs[index];
    if (entry === null) return { kind: 'stdin', input: asText(input), output: asText(output) };
    if (!Array.isArray(input))
      throw new InvalidField(`${field}.inputs[${index}]`, 'expected a list of arguments');
    return { kind: 'call', arguments: input, result: unwrapped(output) };
  });
  return { entry, list };
}

/** The public data wraps results in a list of one. */
function unwrapped(output: Json): Json {
  return Array.isArray(output) && output.length === 1 ? output[0] : output;
}

/**
 * `[{input, output, testtype}]`, as LiveCodeBench writes tests, arguments as JSON, a line each; or
 * `[{input, output, type, fn_name}]`, as PrimeIntellect does, arguments in a list.
 */
function listedTests(tests: Json, field: string, named: string | null): ReadTask {
  if (!Array.isArray(tests)) throw new InvalidField(field, 'expected a list of tests, or inputs and outputs');
  let entry: string | null = null;
  const list = tests.map((test: Json, index): Test => {
    const where = `${field}[${index}]`;
    if (!isObject(test) || test.input === undefined || test.output === undefined) {
      throw new InvalidField(where, 'expected input and output');
    }
    const own = test.fn_name ?? (isObject(test.metadata ?? null) && (test.metadata as JsonObject).func_name);
    const name = typeof own === 'string' ? own : named;
    const calls = test.testtype === 'functional' || test.type === 'function_call';
    if (calls && name === null) throw new InvalidField(where, 'expected fn_name, the function that it calls');
    if (!calls || name === null) {
      return { kind: 'stdin', input: asText(test.input), output: asText(test.output) };
    }
    entry = name;
    const given =
      typeof test.input === 'string'
        ? test.input
            .trim()
            .split('\n')
            .map(line => parsed(line, `${where}.input`))
        : test.input;
    if (!Array.isArray(given)) throw new InvalidField(`${where}.input`, 'expected arguments');
    const result =
      test.testtype === 'functional' ? parsed(test.output, `${where}.output`) : unwrapped(test.output);
    return { kind: 'call', arguments: given, result };
  });
  if (entry !== null && list.some(test => test.kind === 'stdin')) {
    throw new InvalidField(field, 'tests that call and tests that read cannot be mixed');
  }
  return { entry, list };
}

function asText(value: Json): string {
  if (Array.isArray(value)) return value.map(asText).join('\n');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
