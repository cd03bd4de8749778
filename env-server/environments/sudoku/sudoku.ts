import type { Environment, Transition } from '../core/environment.ts';
import { chain } from '../core/maybe-promise.ts';
import { inScheduledSlices } from '../core/slices.ts';
import { LINES } from '../core/spaces.ts';
import { parsePlacement, spellPlacement } from './action.ts';
import { countBlanks, isLegal, isSolved, SIZES } from './board.ts';
import { BLANK_SHARES, configSchema, optionsSchema, STEPS_PER_BLANK, type SudokuConfig } from './config.ts';
import { generatePuzzle, type Puzzle, puzzleKey } from './generator.ts';
import { type Level, pinnedLevel } from './level.ts';
import { MAX_OBSERVATION_LENGTH, observationSpaces, observe, render } from './observation.ts';
import { legalPlacements, optimal, random } from './reference.ts';
import type { SudokuState } from './state.ts';

const REWARD_RIGHT = 1;
const REWARD_LEGAL = 0.5;
const REWARD_SOLVED = 10;
const REWARD_INVALID = -0.1;
/** Between a wrong number and the right one of a cell: a cell earns the same on every way to what it holds. */
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
    const reward = worth(old, number, solution[cell]) + (solved ? REWARD_SOLVED : 0);
    return {
      state: { ...state, grid: next, steps, feedback: '' },
      reward,
      terminated: solved,
      truncated: !solved && steps >= state.maxSteps,
      info: {
        success: solved,
        action_is_valid: true,
        action_is_effective: old !== number,
        blanks: countBlanks(next),
      },
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

/** Cells, rulers, placements and what is said of refused ones; numbers of several digits are words, too. */
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

/** A solved board stays as it is. */
function stay(state: SudokuState): Transition<SudokuState> {
  const info = { success: true, action_is_valid: false, action_is_effective: false, blanks: 0 };
  return { state, reward: 0, terminated: true, info };
}

function refuse(state: SudokuState, reason: string, feedback: string): Transition<SudokuState> {
  const steps = state.steps + 1;
  return {
    state: { ...state, steps, feedback },
    reward: REWARD_INVALID,
    terminated: false,
    truncated: steps >= state.maxSteps,
    info: {
      success: false,
      action_is_valid: false,
      action_is_effective: false,
      blanks: countBlanks(state.grid),
      reason,
    },
  };
}
