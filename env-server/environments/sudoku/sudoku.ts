import { unchanged } from '../core/actions.ts';
import {
  type Environment,
  InvalidOptions,
  type ReferencePolicy,
  stepInfo,
  TIME_LIMIT,
  type Transition,
} from '../core/environment.ts';
import { chain } from '../core/maybe-promise.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { LINES } from '../core/spaces.ts';
import {
  BLANK_SHARES,
  type Cells,
  configSchema,
  countBlanks,
  isConflicting,
  isLegal,
  isSolved,
  MAX_OBSERVATION_LENGTH,
  observationSpaces,
  observe,
  optionsSchema,
  render,
  SIZES,
  STEPS_PER_BLANK,
  type SudokuConfig,
  type SudokuOptions,
  type SudokuState,
} from './board.ts';
import { generatePuzzle, type Puzzle, puzzleKey, solve } from './solver.ts';

/** Every placement that would change the board without breaking a rule. */
function legalPlacements({ size, puzzle, grid }: SudokuState): string[] {
  const placements: string[] = [];
  for (let cell = 0; cell < grid.length; cell++) {
    if (puzzle[cell] !== 0) continue;
    for (const number of legalNumbers(size, grid, cell)) placements.push(spell(size, cell, number));
  }
  return placements;
}

const optimal: ReferencePolicy<SudokuState> = {
  title: 'The numbers of the solution, each when it is legal; wrong ones in the way are moved aside',
  plan: (state, count) => planSolution(state).slice(0, count),
};

const random: ReferencePolicy<SudokuState> = {
  title: 'Uniformly random legal placements',
  plan(state, _count, rng) {
    const placements = legalPlacements(state);
    return placements.length > 0 ? [rng.choice(placements)] : [];
  },
};

function spell(size: number, cell: number, number: number): string {
  return spellPlacement({ row: Math.floor(cell / size) + 1, col: (cell % size) + 1, number });
}

/** Other numbers that the cell can hold. */
function legalNumbers(size: number, grid: Cells, cell: number): number[] {
  const numbers: number[] = [];
  for (let number = 1; number <= size; number++) {
    if (grid[cell] !== number && isLegal(size, grid, cell, number)) numbers.push(number);
  }
  return numbers;
}

function planSolution({ size, grid, solution }: SudokuState): string[] {
  const board = grid.slice();
  const waiting = new Set(grid.flatMap((number, cell) => (number === solution[cell] ? [] : [cell])));
  const plan: string[] = [];
  const put = (cell: number, number: number): void => {
    board[cell] = number;
    plan.push(spell(size, cell, number));
  };
  /** Two wrong numbers can block each other; removing one makes room. */
  const makeRoom = (): boolean => {
    for (const cell of waiting) {
      const [other] = board[cell] === 0 ? [] : legalNumbers(size, board, cell);
      if (other === undefined) continue;
      put(cell, other);
      return true;
    }
    return false;
  };
  for (let moves = waiting.size; waiting.size > 0; ) {
    const before = waiting.size;
    for (const cell of waiting) {
      if (!isLegal(size, board, cell, solution[cell])) continue;
      put(cell, solution[cell]);
      waiting.delete(cell);
    }
    if (waiting.size === before && (moves-- === 0 || !makeRoom())) break;
  }
  return plan;
}

/** Search effort for a puzzle given in the options. */
const MAX_SOLVE_NODES = 5_000;

interface Level {
  readonly puzzle: Cells;
  readonly solution: Cells;
  /** The current board: the givens, perhaps with more numbers. */
  readonly grid: Cells;
}

/**
 * The level that options pin, or null when they pin none.
 * @throws InvalidOptions when they make no puzzle of this size
 */
function pinnedLevel(size: number, options: SudokuOptions): Level | null {
  if (options.puzzle === undefined) {
    if (options.solution === undefined && options.grid === undefined) return null;
    throw new InvalidOptions('/puzzle', 'solution and grid need the puzzle that they belong to');
  }
  const puzzle = readRows(size, options.puzzle, '/puzzle');
  for (let cell = 0; cell < puzzle.length; cell++) {
    if (isConflicting(size, puzzle, cell)) {
      const at = `row ${Math.floor(cell / size) + 1} col ${(cell % size) + 1}`;
      throw new InvalidOptions(
        '/puzzle',
        `the given ${puzzle[cell]} at ${at} repeats in its row, column or box`,
      );
    }
  }
  const solution =
    options.solution === undefined
      ? onlySolution(size, puzzle)
      : checkSolution(size, puzzle, readRows(size, options.solution, '/solution'));
  const grid = options.grid === undefined ? puzzle : readRows(size, options.grid, '/grid');
  if (puzzle.some((number, cell) => number !== 0 && grid[cell] !== number)) {
    throw new InvalidOptions('/grid', 'grid must hold every given of the puzzle');
  }
  if (isSolved(size, grid)) throw new InvalidOptions('/grid', 'the board is already solved');
  return { puzzle, solution, grid };
}

function readRows(size: number, lines: readonly (readonly number[])[], pointer: string): Cells {
  if (lines.length !== size || lines.some(line => line.length !== size)) {
    throw new InvalidOptions(pointer, `needs ${size} rows of ${size} numbers, as config.size says`);
  }
  const cells = lines.flat();
  if (cells.some(number => number > size)) {
    throw new InvalidOptions(pointer, `numbers go from 0 (empty) to ${size}`);
  }
  return cells;
}

function onlySolution(size: number, puzzle: Cells): Cells {
  const { solutions, complete } = solve(size, puzzle, { limit: 2, maxNodes: MAX_SOLVE_NODES });
  if (solutions.length === 1 && complete) return solutions[0];
  throw new InvalidOptions(
    '/puzzle',
    solutions.length === 0 && complete
      ? 'the puzzle has no solution'
      : 'the puzzle has no solution that is known to be the only one; give the one to compare with as solution',
  );
}

function checkSolution(size: number, puzzle: Cells, solution: Cells): Cells {
  if (!isSolved(size, solution)) {
    throw new InvalidOptions(
      '/solution',
      'must be a full board with no number twice in a row, column or box',
    );
  }
  if (puzzle.some((number, cell) => number !== 0 && solution[cell] !== number)) {
    throw new InvalidOptions('/solution', 'must hold every given of the puzzle');
  }
  return solution;
}

const REWARD_RIGHT = 1;
const REWARD_LEGAL = 0.5;
const REWARD_SOLVED = 10;
const REWARD_INVALID = -0.1;
/** Reward of replacing a wrong number by the right one: a cell earns the same on every path to its content. */
const REWARD_CORRECTED = REWARD_RIGHT - REWARD_LEGAL;

export const sudoku: Environment<SudokuConfig, SudokuState> = {
  spec: {
    id: 'Sudoku-v0',
    title: 'Sudoku',
    description: [
      'Fill the empty cells so that every row, column and box holds each number once. Every generated puzzle has exactly one solution.',
      '',
      'Actions are placements, e.g. `place 3 at row 1 col 2`, `place 3 at (1,2)`, `3 at 1,2` or `1,2,3` (row, column, number), counted from 1.',
      'A placement is refused when it lies off the board, names a number that does not exist, touches a given, or repeats a number in a row, column or box.',
      '',
      `Rewards: +${REWARD_RIGHT} for the number of the solution, +${REWARD_LEGAL} for another legal number in an empty cell, ${REWARD_INVALID} for a refused placement, +${REWARD_SOLVED} more when the board is solved.`,
      `A cell earns the same on every way: overwriting a wrong number by the right one earns +${REWARD_CORRECTED}, a right one by a wrong one −${REWARD_CORRECTED}, one wrong number by another 0, and repeating the number already there 0.`,
      '`info.rewards` has the parts: `numbers`, `solved` and `refused`.',
      `The episode is cut after ${STEPS_PER_BLANK} placements for each empty cell, or after \`max_steps\`.`,
      '',
      '`info` has `blanks` (empty cells) and, for a refused placement, `reason`.',
    ].join('\n'),
    tags: ['puzzle', 'grid', 'text-action'],
    configSchema,
    optionsSchema,
    presets: Object.fromEntries(
      SIZES.flatMap(size =>
        Object.keys(BLANK_SHARES).map(difficulty => [`${size}x${size}-${difficulty}`, { size, difficulty }]),
      ),
    ),
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: 64, charset: LINES },
    observationFormats: ['text', 'grid', 'structured'],
    rewardRange: [-REWARD_CORRECTED, REWARD_RIGHT + REWARD_SOLVED],
    knownOptimum: { success: 1, source: 'exact search, reference policy `optimal`' },
    maxEpisodeSteps: STEPS_PER_BLANK * Math.floor(BLANK_SHARES.hard * 16 * 16),
    ends: { solved: 'Filled the board', [TIME_LIMIT]: 'Used up its placements' },
    exampleAction: 'place 3 at row 1 col 2',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe(config) {
    const { size } = config;
    const box = Math.sqrt(size);
    return {
      instruction: `You are solving a ${size}×${size} Sudoku. Fill every empty cell with a number from 1 to ${size} so that each row, each column and each ${box}×${box} box holds every number once. The givens cannot be changed.`,
      legend: [
        { symbol: '[n]', meaning: 'given number n' },
        { symbol: 'n', meaning: 'number n that you placed' },
        { symbol: '*n*', meaning: 'placed number n that repeats in its row, column or box' },
        { symbol: '.', meaning: 'empty cell' },
      ],
      actionFormat: 'place n at row r col c (rows and columns counted from 1)',
      vocabulary: vocabularyOf(size),
    };
  },

  reset(config, rng, options) {
    const pinned = pinnedLevel(config.size, options);
    if (pinned) return begin(config, pinned);
    const { size, difficulty, split } = config;
    const blanks = Math.floor(BLANK_SHARES[difficulty] * size * size);
    return chain(inScheduledSlices(generatePuzzle(size, blanks, rng, split)), puzzle =>
      begin(config, puzzle),
    );
  },

  step(state, action) {
    if (isSolved(state.size, state.grid)) return stay(state);
    const steps = state.steps + 1;
    const placement = typeof action === 'string' ? parsePlacement(action) : null;
    if (!placement) {
      return refuse(state, 'unreadable', `Not a placement. Write: ${spellPlacement(EXAMPLE)}.`);
    }
    const { size, puzzle, grid, solution } = state;
    const { row, col, number } = placement;
    if (row < 1 || row > size || col < 1 || col > size) {
      return refuse(state, 'off_board', `Rows and columns go from 1 to ${size}.`);
    }
    if (number < 1 || number > size) {
      return refuse(state, 'no_such_number', `Numbers go from 1 to ${size}.`);
    }
    const cell = (row - 1) * size + col - 1;
    if (puzzle[cell] !== 0) return refuse(state, 'given', `Row ${row} col ${col} is a given.`);
    if (!isLegal(size, grid, cell, number)) {
      return refuse(
        state,
        'repeats',
        `${number} already stands in the row, column or box of row ${row} col ${col}.`,
      );
    }

    const old = grid[cell];
    const next = old === number ? grid : grid.with(cell, number);
    const solved = isSolved(size, next);
    const capped = !solved && steps >= state.maxSteps;
    const rewards = {
      numbers: worth(old, number, solution[cell]),
      solved: solved ? REWARD_SOLVED : 0,
      refused: 0,
    };
    return {
      state: { ...state, grid: next, steps, feedback: '' },
      reward: rewards.numbers + rewards.solved,
      terminated: solved,
      truncated: capped,
      info: stepInfo(solved, true, old !== number, solved ? 'solved' : capped && TIME_LIMIT, {
        blanks: countBlanks(next),
        rewards,
      }),
    };
  },

  levelKey: ({ size, puzzle }) => puzzleKey(size, puzzle),
  episodeSteps: ({ maxSteps }) => maxSteps,
  observe,
  observationSpaces,
  render,
  validActions: legalPlacements,
  references: { optimal, random },
};

function begin(config: SudokuConfig, level: Puzzle | Level): SudokuState {
  const { puzzle, solution } = level;
  const maxSteps = config.max_steps ?? STEPS_PER_BLANK * countBlanks(puzzle);
  const grid = 'grid' in level ? level.grid : puzzle;
  return { size: config.size, puzzle, solution, grid, steps: 0, maxSteps, feedback: '' };
}

/** Cells, rulers, placements and error texts; numbers of several digits are words, too. */
function vocabularyOf(size: number): string[] {
  const numbers = Array.from({ length: size }, (_, i) => String(i + 1));
  return [
    ...numbers.flatMap(number => [number, `[${number}]`, `*${number}*`]),
    ...Array.from({ length: 10 }, (_, digit) => String(digit)),
    ...['.', '. ', '|', '-', '-+-', 'place ', ' at row ', ' col '],
    ...['Empty cells: ', 'Placements left: ', 'Not a placement. Write: ', 'Rows and columns go from 1 to '],
    ...['Numbers go from 1 to ', 'Row ', ' is a given.', ' already stands in the row, column or box of row '],
  ];
}

const EXAMPLE = { row: 1, col: 2, number: 3 };

function worth(old: number, number: number, right: number): number {
  if (old === number) return 0;
  if (old === 0) return number === right ? REWARD_RIGHT : REWARD_LEGAL;
  if (number === right) return REWARD_CORRECTED;
  return old === right ? -REWARD_CORRECTED : 0;
}

/** A solved board does not change. */
function stay(state: SudokuState): Transition<SudokuState> {
  const more = { blanks: 0, rewards: { numbers: 0, solved: 0, refused: 0 } };
  return unchanged(state, false, { success: true, ended_by: 'solved' }, more);
}

function refuse(state: SudokuState, reason: string, feedback: string): Transition<SudokuState> {
  const steps = state.steps + 1;
  const capped = steps >= state.maxSteps;
  return {
    state: { ...state, steps, feedback },
    reward: REWARD_INVALID,
    terminated: false,
    truncated: capped,
    info: stepInfo(false, false, false, capped && TIME_LIMIT, {
      blanks: countBlanks(state.grid),
      rewards: { numbers: 0, solved: 0, refused: REWARD_INVALID },
      reason,
    }),
  };
}

/** A placement; row and column counted from 1. */
interface Placement {
  readonly row: number;
  readonly col: number;
  readonly number: number;
}

const NUMBER = String.raw`\d{1,3}`;
const PAIR = String.raw`(?:\(\s*)?(?<row>${NUMBER})\s*,\s*(?<col>${NUMBER})\s*\)?`;

/** `place n at row r col c`, `n at (r, c)`, `r,c,n` and their mixtures, in any case. */
const SPELLINGS = [
  new RegExp(
    `^(?:place\\s+)?(?<number>${NUMBER})\\s+at\\s+row\\s+(?<row>${NUMBER})\\s*(?:,\\s*)?col(?:umn)?\\s+(?<col>${NUMBER})$`,
    'i',
  ),
  new RegExp(`^(?:place\\s+)?(?<number>${NUMBER})\\s+at\\s+${PAIR}$`, 'i'),
  new RegExp(
    `^\\(?\\s*(?<row>${NUMBER})\\s*,\\s*(?<col>${NUMBER})\\s*,\\s*(?<number>${NUMBER})\\s*\\)?$`,
    'i',
  ),
];

/** The placement in a text, or null. Bounds are not checked. */
export function parsePlacement(text: string): Placement | null {
  const trimmed = text.trim();
  for (const spelling of SPELLINGS) {
    const groups = spelling.exec(trimmed)?.groups;
    if (groups) return { row: Number(groups.row), col: Number(groups.col), number: Number(groups.number) };
  }
  return null;
}

/** The spelling that `describe` teaches. */
function spellPlacement({ row, col, number }: Placement): string {
  return `place ${number} at row ${row} col ${col}`;
}
