import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { unchanged } from '../core/actions.ts';
import { InvalidField, numberField, numbersField, readRecords } from '../core/datasets/records.ts';
import { dataFile } from '../core/datasets/word-problems.ts';
import {
  type Description,
  type Environment,
  type EnvironmentSpec,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  type ReferencePolicy,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { choiceSetting, integerSetting } from '../core/settings.ts';
import { COUNT, dict, LINES, list, number, type ObservationSpaces, orNull, text } from '../core/spaces.ts';
import { isInSplit, splitSchema } from '../core/splits.ts';
import { solve, solveBySigns } from './solver.ts';

type Puzzle = { readonly nums: readonly number[]; readonly target: number };

const MAX_NUMBERS = 6;

/** A row of the public Countdown data. @throws InvalidField */
function readPuzzle(record: JsonObject): Puzzle {
  const nums = numbersField(record, 'nums');
  if (nums.length === 0 || nums.length > MAX_NUMBERS || !nums.every(isNatural)) {
    throw new InvalidField('nums', `expected 1 to ${MAX_NUMBERS} integers from 0`);
  }
  return { nums, target: numberField(record, 'target') };
}

function isNatural(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Level identity of a puzzle: numbers and target; the order of the numbers does not matter. */
export function puzzleKey({ nums, target }: Puzzle): string {
  return `${nums.toSorted((a, b) => a - b).join(' ')} = ${target}`;
}

const count = (fallback: number, description: string) =>
  Type.Integer({ default: fallback, minimum: 2, maximum: 6, description });

const configSchema = closed({
  min_nums: count(3, 'Fewest numbers of a generated puzzle.'),
  max_nums: count(4, 'Maximum numbers of a generated puzzle.'),
  max_number: integerSetting(99, [1, 1000], 'Greatest number.'),
  max_target: integerSetting(100, [1, 1_000_000], 'Greatest target.'),
  operators: choiceSetting(
    ['all', 'plus_minus'],
    'all',
    'Operators a puzzle needs at most. With plus_minus, rows of a data file that + and − cannot solve are left out, as RAGEN does.',
  ),
  split: splitSchema,
  data: dataFile(
    'File of puzzles instead of generated ones: .jsonl, .json or .parquet with the fields nums and target.',
  ),
});

const optionsSchema = closed({
  nums: Type.Optional(
    Type.Array(Type.Integer({ minimum: 0, maximum: 1_000_000 }), {
      minItems: 1,
      maxItems: 6,
      description: 'The numbers; goes with target.',
    }),
  ),
  target: Type.Optional(Type.Number({ description: 'The target; goes with nums.' })),
  index: Type.Optional(Type.Integer({ minimum: 0, description: 'Row of the data file, from 0.' })),
});

type CountdownConfig = Static<typeof configSchema>;
type CountdownOptions = Static<typeof optionsSchema>;

const PRESETS: { readonly [name: string]: JsonObject } = {
  three: { min_nums: 3, max_nums: 3 },
  four: { min_nums: 4, max_nums: 4 },
  plus_minus: { operators: 'plus_minus' },
};

const RIGHT = 1;
const RIGHT_NUMBERS = 0.1;
const WRONG = 0;

/** Largest difference between equal values. */
const TOLERANCE = 1e-5;

interface Score {
  readonly reward: number;
  /** Value of the expression; null where it is malformed or divides by zero. */
  readonly value: number | null;
}

/** 1 for the target from exactly the given numbers, 0.1 for exactly the given numbers, else 0. */
export function score(text: string, nums: readonly number[], target: number): Score {
  const expression = evaluate(text);
  if (!expression) return { reward: WRONG, value: null };
  const value = Number.isFinite(expression.value) ? expression.value : null;
  if (!sameNumbers(expression.numbers, nums)) return { reward: WRONG, value };
  const right = value !== null && Math.abs(value - target) < TOLERANCE;
  return { reward: right ? RIGHT : RIGHT_NUMBERS, value };
}

/** End of an episode with this score. */
function endOf({ reward, value }: Score): string {
  if (reward === RIGHT) return 'right_answer';
  if (value === null) return 'unreadable';
  return reward === RIGHT_NUMBERS ? 'wrong_value' : 'wrong_numbers';
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a.length !== b.length) return false;
  const wanted = b.toSorted((x, y) => x - y);
  return a.toSorted((x, y) => x - y).every((value, i) => value === wanted[i]);
}

/** Deepest nesting of parentheses and signs that is parsed. */
const DEEPEST = 64;

interface Evaluation {
  /** Integers of the expression in the order written. */
  readonly numbers: readonly number[];
  /** NaN or infinite where it divides by zero. */
  readonly value: number;
}

/**
 * Parses an arithmetic expression of integers, + − * /, parentheses and signs. Nothing is ever evaluated as code, and
 * nothing else is an expression: no powers, no remainders, no decimals, no hexadecimals.
 * @returns undefined when the text is not an expression
 */
export function evaluate(text: string): Evaluation | undefined {
  const tokens = text.match(/\d+|\S/g) ?? [];
  const numbers: number[] = [];
  let at = 0;

  const sum = (depth: number): number => {
    let value = product(depth);
    while (tokens[at] === '+' || tokens[at] === '-') {
      value = tokens[at++] === '+' ? value + product(depth) : value - product(depth);
    }
    return value;
  };
  const product = (depth: number): number => {
    let value = factor(depth);
    while (tokens[at] === '*' || tokens[at] === '/') {
      value = tokens[at++] === '*' ? value * factor(depth) : value / factor(depth);
    }
    return value;
  };
  const factor = (depth: number): number => {
    if (depth > DEEPEST) throw new NotAnExpression();
    const token = tokens[at++];
    if (token === '-') return -factor(depth + 1);
    if (token === '+') return factor(depth + 1);
    if (token === '(') {
      const value = sum(depth + 1);
      if (tokens[at++] !== ')') throw new NotAnExpression();
      return value;
    }
    if (token === undefined || !/^(?:0|[1-9]\d*)$/.test(token)) throw new NotAnExpression();
    numbers.push(Number(token));
    return Number(token);
  };

  try {
    const value = sum(0);
    return at === tokens.length ? { numbers, value } : undefined;
  } catch (error) {
    if (error instanceof NotAnExpression) return undefined;
    throw error;
  }
}

class NotAnExpression extends Error {}

const MAX_TRIES = 100_000;
const OPERATORS = ['+', '-', '*', '/'];
const SIGNS = ['+', '-'];

/**
 * Numbers, and a target made by joining them at random, so that there is a solution.
 * @throws InvalidConfig when the limits leave no puzzle
 */
function drawPuzzle(config: CountdownConfig, rng: Random): Puzzle {
  const { min_nums, max_nums, max_number, max_target } = config;
  const operators = config.operators === 'plus_minus' ? SIGNS : OPERATORS;
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const count = min_nums + rng.integer(max_nums - min_nums + 1);
    const nums = Array.from({ length: count }, () => 1 + rng.integer(max_number));
    const target = joinAll(nums, operators, rng);
    if (target === undefined || target < 1 || target > max_target) continue;
    const puzzle = { nums, target };
    if (isInSplit(() => puzzleKey(puzzle), config.split)) return puzzle;
  }
  throw new InvalidConfig('/max_target', `found no puzzle in ${MAX_TRIES} tries; allow larger targets`);
}

/** Joins random pairs until one value is left; undefined as soon as a value is negative or not an integer. */
function joinAll(nums: readonly number[], operators: readonly string[], rng: Random): number | undefined {
  const left = nums.slice();
  while (left.length > 1) {
    const [a] = left.splice(rng.integer(left.length), 1);
    const [b] = left.splice(rng.integer(left.length), 1);
    const value = apply(rng.choice(operators), a, b);
    if (!Number.isSafeInteger(value) || value < 0) return undefined;
    left.push(value);
  }
  return left[0];
}

function apply(operator: string, a: number, b: number): number {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    default:
      return a / b;
  }
}

const MAX_ANSWER_LENGTH = 2000;

export type CountdownState = {
  readonly nums: readonly number[];
  readonly target: number;
  /** Operators of the random player; all four when absent. */
  readonly operators?: readonly string[];
  /** The answer's text, value and reward. */
  readonly answer: { readonly text: string; readonly value: number | null; readonly reward: number } | null;
};

const spec: EnvironmentSpec = {
  id: 'Countdown-v0',
  title: 'Countdown',
  description: [
    'Some numbers and a target are given. The player answers with one arithmetic expression that uses every number',
    'exactly once and comes to the target. Allowed are + − * /, brackets and signs.',
    '',
    'An expression that comes to the target from exactly the given numbers pays 1; one that uses exactly the given',
    'numbers but comes to something else pays 0.1; anything else pays 0. The episode is one answer. The expression',
    'is parsed, never run as code: powers, remainders, decimals and other notations are not expressions here.',
    '',
    '`info.rewards` has the two parts of that by themselves: `correct`, and `numbers` for using exactly the given ones.',
    '',
    'Puzzles are generated backwards from a random expression, so each has a solution, or come from a data file.',
  ].join('\n'),
  tags: ['arithmetic', 'puzzle', 'one step', 'text'],
  configSchema,
  optionsSchema,
  presets: PRESETS,
  observationSpace: { type: 'Text', maxLength: 4 * MAX_ANSWER_LENGTH },
  actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_ANSWER_LENGTH, charset: LINES },
  observationFormats: ['text', 'structured'],
  rewardRange: [0, 1],
  knownOptimum: { success: 1, source: 'search over all expressions solves every generated puzzle' },
  maxEpisodeSteps: 1,
  ends: {
    right_answer: 'Came to the target',
    wrong_value: 'Came to another number than the target',
    wrong_numbers: 'Did not use exactly the given numbers',
    unreadable: 'Wrote no expression that has a value',
  },
  exampleAction: '(3 + 5) * 2',
  history: [{ version: 0, change: 'First version.' }],
};

/** Numbers are written digit by digit, so that a closed vocabulary covers every puzzle. */
const VOCABULARY = [
  ...Array.from({ length: 10 }, (_, digit) => String(digit)),
  ...['Numbers: ', 'Target: ', 'Answer: ', 'Value: ', 'none'],
  ...[' + ', ' - ', ' * ', ' / ', '+', '-', '*', '/', '(', ')', '.'],
];

/** Countdown-v0: RAGEN's scoring on generated puzzles or the public data. */
export const countdown = {
  spec,

  describe: (): Description => ({
    instruction:
      'Write one arithmetic expression that uses every given number exactly once and comes to the target. You may use + - * / and brackets.',
    actionFormat: 'an expression, e.g. (3 + 5) * 2',
    vocabulary: VOCABULARY,
  }),

  observationSpaces: (): ObservationSpaces => ({
    text: text(4 * MAX_ANSWER_LENGTH),
    structured: dict({
      nums: list(COUNT),
      target: number(),
      answer: orNull(dict({ text: text(MAX_ANSWER_LENGTH), value: orNull(number()), reward: number(0, 1) })),
    }),
  }),

  checkConfig(config: CountdownConfig): void {
    if (config.max_nums < config.min_nums) {
      throw new InvalidConfig('/max_nums', 'max_nums is smaller than min_nums');
    }
  },

  async reset(config: CountdownConfig, rng: Random, options: JsonObject): Promise<CountdownState> {
    const { nums, target } = await choosePuzzle(config, rng, options);
    return { nums, target, ...(config.operators === 'plus_minus' && { operators: SIGNS }), answer: null };
  },

  step(state: CountdownState, action: Json): Transition<CountdownState> {
    const valid = typeof action === 'string' && action.length <= MAX_ANSWER_LENGTH;
    if (!valid || state.answer) {
      const end = state.answer && { success: state.answer.reward === RIGHT, ended_by: endOf(state.answer) };
      return unchanged(state, valid, end, { rewards: { correct: 0, numbers: 0 } });
    }
    const { reward, value } = score(action, state.nums, state.target);
    return {
      state: { ...state, answer: { text: action, value, reward } },
      reward,
      terminated: true,
      info: stepInfo(reward === RIGHT, true, true, endOf({ reward, value }), {
        value,
        rewards: { correct: reward === RIGHT ? 1 : 0, numbers: reward > 0 ? 1 : 0 },
      }),
    };
  },

  levelKey: (state: CountdownState) => puzzleKey(state),

  observe({ nums, target, answer }: CountdownState, format: ObservationFormat): Json {
    if (format === 'structured') return { nums, target, answer };
    const puzzle = `Numbers: ${nums.join(' ')}\nTarget: ${target}`;
    if (!answer) return puzzle;
    return `${puzzle}\nAnswer: ${answer.text}\nValue: ${answer.value ?? 'none'}`;
  },

  references: {
    optimal: {
      title: 'Search over all expressions of the numbers',
      plan({ nums, target, answer }: CountdownState) {
        const solution = answer ? undefined : solve(nums, target);
        return solution ? [solution] : [];
      },
    },
    random: {
      title: 'The numbers in random order with random operators, of those that the puzzle needs at most',
      plan({ nums, operators = OPERATORS, answer }: CountdownState, _count: number, rng: Random) {
        if (answer) return [];
        const [first, ...rest] = rng.shuffle(nums);
        return [[first, ...rest.flatMap(num => [rng.choice(operators), num])].join(' ')];
      },
    },
  } satisfies { [name: string]: ReferencePolicy<CountdownState> },
} satisfies Environment<CountdownConfig, CountdownState>;

async function choosePuzzle(
  config: CountdownConfig,
  rng: Random,
  options: CountdownOptions,
): Promise<Puzzle> {
  const { nums, target, index } = options;
  if (nums && target !== undefined) return { nums, target };
  if (nums) throw new InvalidOptions('/target', 'nums needs a target next to it');
  if (target !== undefined) throw new InvalidOptions('/nums', 'target needs nums next to it');
  if (config.data === undefined) {
    if (index !== undefined) throw new InvalidOptions('/index', 'index needs a data file in the config');
    return drawPuzzle(config, rng);
  }
  const rows = await puzzlesOf(config, config.data);
  if (index === undefined) return rng.choice(rows);
  if (index >= rows.length) throw new InvalidOptions('/index', `the data has rows 0 to ${rows.length - 1}`);
  return rows[index];
}

const chosenRows = new WeakMap<readonly Puzzle[], Map<string, readonly Puzzle[]>>();

/** The rows of the file that fit the configuration, kept as long as the file. */
async function puzzlesOf(config: CountdownConfig, path: string): Promise<readonly Puzzle[]> {
  const all = await readRecords('/data', path, readPuzzle);
  const key = `${config.operators} ${config.split}`;
  const choices = remembered(chosenRows, all, () => new Map());
  const rows: readonly Puzzle[] = remembered(choices, key, () =>
    all.filter(
      puzzle =>
        isInSplit(() => puzzleKey(puzzle), config.split) &&
        (config.operators === 'all' || solveBySigns(puzzle.nums, puzzle.target) !== undefined),
    ),
  );
  if (rows.length === 0) throw new InvalidConfig('/data', `no row of ${path} fits operators and split`);
  return rows;
}
