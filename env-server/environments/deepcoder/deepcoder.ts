import { AsyncLocalStorage } from 'node:async_hooks';
import { StringDecoder } from 'node:string_decoder';
import { isObject, type Json, type JsonObject, parseJson } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { Problem } from '../../problems.ts';
import { unchanged } from '../core/actions.ts';
import { chooseRecord, partOf, pick } from '../core/datasets/records.ts';
import { MARKED_WORDS, words } from '../core/datasets/word-problems.ts';
import {
  type Condition,
  type Environment,
  InvalidOptions,
  type ObservationFormat,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { COUNT, dict, LINES, type ObservationSpaces, orNull, text } from '../core/spaces.ts';
import { SPLIT_PRESETS } from '../core/splits.ts';
import { findIsolation, type Isolation, UNISOLATED_VARIABLE } from './sandbox/isolation.ts';
import { SandboxPool } from './sandbox/pool.ts';
import { type JobLimits, type RunResult, SandboxFailed } from './sandbox/sandbox.ts';
import {
  ceilings,
  checkCeilings,
  configSchema,
  DEEPEST_VALUE,
  type DeepCoderConfig,
  type DeepCoderOptions,
  isDeeperThan,
  limitsOf,
  MAX_STATEMENT_LENGTH,
  optionsSchema,
  queueLimits,
  readTask,
  TASKS,
  type Task,
  type Test,
  tooManyTests,
} from './tasks.ts';

const MAX_PROGRAM_LENGTH = 50_000;
const SHOWN_CHARS = 500;
const RETRY_AFTER_SECONDS = 10;
/** Length of a failure with every character escaped. */
const MAX_FAILURE_LENGTH = 10 * SHOWN_CHARS;
/** Failed tests that `info` names. */
const MAX_NAMED_TESTS = 100;

export type DeepCoderState = {
  readonly task: Task;
  readonly limits: { readonly [limit in keyof JobLimits]: number };
  readonly outcome: {
    readonly passed: number;
    readonly total: number;
    /** Failure of the first failed test; empty when all passed. */
    readonly failure: string;
  } | null;
};

let pool: SandboxPool | undefined;
/** Owner of the session that a reset or step belongs to. */
const owners = new AsyncLocalStorage<string>();

/** The sandboxes of this process. */
function sandboxes(): SandboxPool {
  pool ??= new SandboxPool(queueLimits());
  return pool;
}

/** Ends all sandboxes; the next program starts new ones. */
export function stopSandboxes(): void {
  pool?.stop();
  pool = undefined;
}

/** Converts sandbox failures to problems: nothing was done, and no program is at fault. */
async function isolated<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof SandboxFailed)) throw error;
    throw new Problem('isolation_unavailable', `no program was run: ${error.message}`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      cause: error,
    });
  }
}

/** DeepCoder-v0: programs in Python, run against tests. */
export const deepCoder = {
  spec: {
    id: 'DeepCoder-v0',
    title: 'Programming tasks in Python',
    description: [
      'A programming task is answered with one Python program. Tests run it on standard input, or call its function (or the method of its class `Solution`). The reward is the share of tests that pass; success is all of them. An empty answer changes nothing.',
      '',
      'Printed lines are compared without white space at their ends, fractions within 1e-6; returned values as JSON.',
      '',
      'Each test runs in a separate process without files, network or other processes, with limits on time, memory and output; breaking a limit fails the test. A configuration above the operator’s ceilings is rejected with 422. A program that waits too long gets `environment_busy`.\n\nWithout isolation no program runs: the answer is the problem `isolation_unavailable`. `condition` of `GET /v1/envs/DeepCoder-v0` names the isolation; `info` has `isolation`, `passed`, `total`, `failure` and `failed_tests`, the numbers of the first 100 that failed. `info.rewards` has `tests`, which is the reward, and `all_tests`: 1 where all passed.',
    ].join('\n'),
    tags: ['programming', 'one step', 'text'],
    configSchema,
    optionsSchema,
    presets: SPLIT_PRESETS,
    observationSpace: { type: 'Text', maxLength: MAX_STATEMENT_LENGTH + MAX_PROGRAM_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_PROGRAM_LENGTH, charset: `${LINES}\t` },
    ...MARKED_WORDS,
    knownOptimum: {
      success: 1,
      source: 'reference policy `oracle`, the solutions that come with the shipped tasks',
    },
    maxEpisodeSteps: 1,
    ends: {
      all_tests_passed: 'Passed all tests',
      some_tests_passed: 'Passed some of the tests',
      no_tests_passed: 'Passed none of the tests',
    },
    exampleAction: 'print(sum(map(int, input().split())))',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: (_config: DeepCoderConfig) => ({
    instruction:
      'Solve the programming task with one complete Python 3 program. It is run against tests that you do not see.',
    actionFormat: 'the program, perhaps in a code block ```python … ```',
  }),

  checkConfig: checkCeilings,

  observationSpaces({ data }: DeepCoderConfig): ObservationSpaces {
    const of = words([data]);
    return {
      text: of(MAX_STATEMENT_LENGTH + MAX_PROGRAM_LENGTH),
      structured: dict({
        statement: of(MAX_STATEMENT_LENGTH),
        starter: of(MAX_PROGRAM_LENGTH),
        entry: orNull(of(MAX_STATEMENT_LENGTH)),
        outcome: orNull(dict({ passed: COUNT, total: COUNT, failure: text(MAX_FAILURE_LENGTH) })),
      }),
    };
  },

  /** @throws Problem `isolation_unavailable`; InvalidOptions, InvalidConfig */
  async reset(config: DeepCoderConfig, rng: Random, options: JsonObject): Promise<DeepCoderState> {
    const task = await chooseTask(config, rng, options);
    await isolated(() => sandboxes().warm());
    return { task, limits: limitsOf(config), outcome: null };
  },

  /** @throws Problem `isolation_unavailable`, `environment_busy`, `too_many_requests`, with the state unchanged */
  async step(state: DeepCoderState, action: Json): Promise<Transition<DeepCoderState>> {
    const program =
      typeof action === 'string' && action.length <= MAX_PROGRAM_LENGTH ? programOf(action) : '';
    const { task, limits } = state;
    if (program.trim() === '' || state.outcome) {
      const { outcome } = state;
      const end = outcome && { success: outcome.passed === outcome.total, ended_by: endOf(outcome) };
      return unchanged(state, false, end, { rewards: { tests: 0, all_tests: 0 } });
    }
    const inputs = task.tests.map(test => (test.kind === 'stdin' ? test.input : test.arguments));
    const { walls, failures } = await isolated(async () => ({
      walls: (await sandboxes().warm()).walls,
      failures: await sandboxes().run(
        { ...limits, program, function: task.entry, inputs },
        owners.getStore() ?? '',
        (result, index) => escaped(failureOf(task.tests[index], result)),
      ),
    }));
    const passed = failures.filter(failure => failure === '').length;
    const total = task.tests.length;
    const failure = failures.find(Boolean) ?? '';
    const failed = failures.flatMap((each, index) => (each === '' ? [] : [index + 1]));
    return {
      state: { ...state, outcome: { passed, total, failure } },
      reward: passed / total,
      terminated: true,
      info: stepInfo(passed === total, true, true, endOf({ passed, total }), {
        passed,
        total,
        failure,
        failed_tests: failed.slice(0, MAX_NAMED_TESTS),
        rewards: { tests: passed / total, all_tests: Number(passed === total) },
        isolation: [...walls],
      }),
    };
  },

  playFor: (owner, play) => owners.run(owner, play),

  observe({ task, outcome }: DeepCoderState, format: ObservationFormat): Json {
    const { statement, starter } = task;
    if (format === 'structured') return { statement, starter, entry: task.entry, outcome };
    const lines = starter === '' ? [statement] : [statement, '', 'Start from:', starter];
    if (outcome) lines.push('', `${outcome.passed} of ${outcome.total} tests passed.`, outcome.failure);
    return lines.join('\n').trimEnd();
  },

  async condition() {
    try {
      return describeIsolation(await findIsolation());
    } catch (error) {
      if (!(error instanceof SandboxFailed)) throw error;
      return {
        summary: `no program is run: ${error.message}`,
        isolated: false,
        isolation: [],
        ceilings: ceilings(),
      };
    }
  },

  references: {
    oracle: {
      title: 'The solution that comes with the task',
      plan: ({ task, outcome }: DeepCoderState) => (outcome || task.solution === '' ? [] : [task.solution]),
    },
    random: {
      title: 'A program that prints, or returns, its input',
      plan: ({ task, outcome }: DeepCoderState) => {
        if (outcome) return [];
        return [task.entry ? `def ${task.entry}(*given):\n    return given[0]` : 'print(input())'];
      },
    },
  },
} satisfies Environment<DeepCoderConfig, DeepCoderState>;

function endOf({ passed, total }: { readonly passed: number; readonly total: number }): string {
  if (passed === total) return 'all_tests_passed';
  return passed > 0 ? 'some_tests_passed' : 'no_tests_passed';
}

function describeIsolation({ walls, proven }: Isolation): Condition {
  const names = walls.join(', ');
  const summary = proven
    ? `programs run isolated by ${names}`
    : `programs run WITHOUT isolation, as ${UNISOLATED_VARIABLE}=1 allows; only ${names}`;
  return { summary, isolated: proven, isolation: [...walls], ceilings: ceilings() };
}

/** The code of the last fenced block, or the whole text where there is none. */
export function programOf(answer: string): string {
  const blocks = [...answer.matchAll(/```(?:python|py)?[^\S\n]*\n(.*?)```/gis)];
  return blocks.at(-1)?.[1] ?? answer;
}

/** A compiler message, which quotes a program, in printable ASCII and line breaks. */
function escaped(text: string): string {
  return text.replaceAll(/[^\n\x20-\x7e]/gu, odd => `\\u{${odd.codePointAt(0)!.toString(16)}}`);
}

/** Why a test failed, or an empty text. It quotes nothing that a program wrote, which could be the input of a test. */
function failureOf(test: Test, { status, output, error }: RunResult): string {
  if (status === 'invalid') return error.slice(0, SHOWN_CHARS);
  if (status === 'timeout') return 'out of time';
  if (status === 'output') return 'printed too much';
  if (status === 'error') return 'ended with an error';
  if (test.kind === 'stdin') return isSameOutput(output, test.output) ? '' : 'wrong output';
  const value = parseJson(output.toString()) as Json | undefined;
  if (value === undefined) return 'returned a value that is not JSON';
  return isSameValue(value, test.result) ? '' : 'wrong result';
}

/**
 * The task of an episode: pinned, named, from a data file, or a shipped one.
 * @throws InvalidOptions, InvalidConfig
 */
async function chooseTask(
  { data, split }: DeepCoderConfig,
  rng: Random,
  { name, index, statement, entry, tests }: DeepCoderOptions,
): Promise<Task> {
  if (statement !== undefined || tests) return pinnedTask(statement, entry, tests);
  if (entry !== undefined) throw new InvalidOptions('/entry', 'entry needs a statement and tests with it');
  if (name !== undefined) return TASKS.find(task => task.name === name) as Task;
  const key = (task: Task) => task.statement;
  if (data !== undefined) return chooseRecord({ path: data, read: readTask, split, key, index }, rng);
  return pick(partOf(TASKS, split, key), index, rng);
}

function pinnedTask(
  statement: DeepCoderOptions['statement'],
  entry: string | undefined,
  tests: DeepCoderOptions['tests'],
): Task {
  if (statement === undefined)
    throw new InvalidOptions('/statement', 'tests need the statement that they belong to');
  if (!tests) throw new InvalidOptions('/tests', 'the statement needs its tests with it');
  const fault = tooManyTests(tests.length);
  if (fault !== undefined) throw new InvalidOptions('/tests', fault);
  const list = tests.map((test, index): Test => {
    if ('input' in test !== (entry === undefined)) {
      throw new InvalidOptions(
        `/tests/${index}`,
        entry === undefined ? 'needs input and output' : 'needs arguments and result',
      );
    }
    if ('input' in test) return { kind: 'stdin', input: test.input, output: test.output };
    requireShallow(`/tests/${index}/arguments`, test.arguments);
    requireShallow(`/tests/${index}/result`, test.result);
    return { kind: 'call', arguments: test.arguments, result: test.result };
  });
  return { name: '', statement, starter: '', entry: entry ?? null, tests: list, solution: '' };
}

function requireShallow(pointer: string, value: Json): void {
  if (!isDeeperThan(value, DEEPEST_VALUE)) return;
  throw new InvalidOptions(pointer, `is nested deeper than ${DEEPEST_VALUE} levels`);
}

/** Relative tolerance between fractions. */
const TOLERANCE = 1e-6;
/** Longest text compared as a number. */
const MAX_NUMBER_LENGTH = 1000;

/** Bytes of printed text decoded at a time; more within a longer word. */
const PIECE = 65_536;
/** A word longer than the whole expected text by this many characters is wrong, even if it is the same number. */
const LONGER = 4096;

/**
 * Printed text in UTF-8 is right: the same lines but for white space at their ends, or the same words with nearly equal
 * fractions. It stops at the first word that differs and decodes a piece at a time: outputs may be long, and many.
 */
export function isSameOutput(printed: Buffer, wanted: string): boolean {
  const longest = wanted.length + LONGER;
  const right = wanted.matchAll(/\S+/g);
  for (const { word, index } of wordsOf(printed, longest)) {
    const next = right.next();
    if (next.done || word.length > longest || !isSameWord(word, next.value[0])) return false;
    if ((index === 0) !== (next.value.index === 0)) return false;
  }
  return right.next().done === true;
}

/**
 * Words with their indices; a word longer than `longest` characters may come in parts, of which the first is also long.
 */
function* wordsOf(bytes: Buffer, longest: number): Generator<{ word: string; index: number }> {
  const decoder = new StringDecoder('utf8');
  let before = 0;
  /** Last word of the previous piece, which may continue in the next one. */
  let begun = '';
  for (let at = 0, end: number; at < bytes.length; at = end) {
    // A long word is scanned again with each piece; pieces as long as the word limit that to twice.
    end = at + Math.max(PIECE, begun.length);
    const isLast = end >= bytes.length;
    const piece = decoder.write(bytes.subarray(at, end)) + (isLast ? decoder.end() : '');
    const text = begun + piece;
    begun = '';
    for (const { 0: word, index } of text.matchAll(/\S+/g)) {
      if (!isLast && index + word.length === text.length && word.length <= longest) begun = word;
      else yield { word, index: before + index };
    }
    before += text.length - begun.length;
  }
}

function isSameWord(word: string, wanted: string): boolean {
  if (word === wanted) return true;
  if (!wanted.includes('.') || !isNumber(word) || !isNumber(wanted)) return false;
  return isClose(Number(word), Number(wanted));
}

function isNumber(word: string): boolean {
  return word.length <= MAX_NUMBER_LENGTH && /^[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?$/i.test(word);
}

function isClose(a: number, b: number): boolean {
  return Math.abs(a - b) <= TOLERANCE * Math.max(1, Math.abs(b));
}

/** True if a returned value is right: equal as JSON, with tolerance for fractions. */
export function isSameValue(found: Json, wanted: Json): boolean {
  if (typeof found === 'number' && typeof wanted === 'number') {
    return found === wanted || (!Number.isInteger(wanted) && isClose(found, wanted));
  }
  if (Array.isArray(found) && Array.isArray(wanted)) {
    return found.length === wanted.length && found.every((item, index) => isSameValue(item, wanted[index]));
  }
  if (isObject(found) && isObject(wanted)) {
    const keys = Object.keys(wanted);
    return (
      keys.length === Object.keys(found).length &&
      keys.every(key => Object.hasOwn(found, key) && isSameValue(found[key], wanted[key]))
    );
  }
  return found === wanted;
}
