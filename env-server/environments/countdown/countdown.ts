import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { readRecords } from '../core/datasets/records.ts';
import {
  type Description,
  type Environment,
  type EnvironmentSpec,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  type ReferencePolicy,
  type Transition,
} from '../core/environment.ts';
import type { ObservationSpaces } from '../core/space.ts';
import { COUNT, dict, LINES, list, number, orNull, text } from '../core/spaces.ts';
import { isInSplit } from '../core/splits.ts';
import {
  type CountdownConfig,
  type CountdownOptions,
  configSchema,
  optionsSchema,
  PRESETS,
} from './config.ts';
import { type Puzzle, puzzleKey, readPuzzle } from './data.ts';
import { drawPuzzle } from './generator.ts';
import { RIGHT, score } from './scoring.ts';
import { solve, solveBySigns } from './solver.ts';

const MAX_ANSWER_LENGTH = 2000;

export type CountdownState = {
  readonly nums: readonly number[];
  readonly target: number;
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
  exampleAction: '(3 + 5) * 2',
  history: [{ version: 0, change: 'First version.' }],
};

/** Numbers are written by digits, so that every puzzle has a word for each of its parts. */
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
    return { nums, target, answer: null };
  },

  step(state: CountdownState, action: Json): Transition<CountdownState> {
    const valid = typeof action === 'string' && action.length <= MAX_ANSWER_LENGTH;
    if (!valid || state.answer) {
      return {
        state,
        reward: 0,
        terminated: state.answer !== null,
        info: {
          success: state.answer?.reward === RIGHT,
          action_is_valid: valid,
          action_is_effective: false,
          rewards: { correct: 0, numbers: 0 },
        },
      };
    }
    const { reward, value } = score(action, state.nums, state.target);
    return {
      state: { ...state, answer: { text: action, value, reward } },
      reward,
      terminated: true,
      info: {
        success: reward === RIGHT,
        action_is_valid: true,
        action_is_effective: true,
        value,
        rewards: { correct: reward === RIGHT ? 1 : 0, numbers: reward > 0 ? 1 : 0 },
      },
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
      title: 'The numbers in random order with random operators',
      plan({ nums, answer }: CountdownState, _count: number, rng: Random) {
        if (answer) return [];
        const [first, ...rest] = rng.shuffle(nums);
        return [[first, ...rest.flatMap(num => [rng.choice(['+', '-', '*', '/']), num])].join(' ')];
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

/** The rows of the file that the configuration admits, kept for as long as the file is. */
async function puzzlesOf(config: CountdownConfig, path: string): Promise<readonly Puzzle[]> {
  const all = await readRecords('/data', path, readPuzzle);
  const key = `${config.operators} ${config.split}`;
  let choices = chosenRows.get(all);
  if (!choices) {
    choices = new Map();
    chosenRows.set(all, choices);
  }
  let rows = choices.get(key);
  if (!rows) {
    rows = all.filter(
      puzzle =>
        isInSplit(puzzleKey(puzzle), config.split) &&
        (config.operators === 'all' || solveBySigns(puzzle.nums, puzzle.target) !== undefined),
    );
    choices.set(key, rows);
  }
  if (rows.length === 0) throw new InvalidConfig('/data', `no row of ${path} fits operators and split`);
  return rows;
}
