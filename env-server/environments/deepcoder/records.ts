import type { Json, JsonObject } from '../../../shared/json.ts';
import { InvalidField, textField } from '../core/datasets/records.ts';
import { DEEPEST_VALUE, isDeeperThan, type Task, type Test } from './tasks.ts';

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
  try {
    return JSON.parse(value) as Json;
  } catch {
    throw new InvalidField(field, 'is not JSON');
  }
}

function isObject(value: Json): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
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
