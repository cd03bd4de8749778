import { InvalidOptions } from '../core/environment.ts';
import { type Cells, isConflicting, isSolved } from './board.ts';
import type { SudokuOptions } from './config.ts';
import { solve } from './solver.ts';

/** Search effort spent on a puzzle that comes by options. */
const MAX_SOLVE_NODES = 5_000;

export interface Level {
  readonly puzzle: Cells;
  readonly solution: Cells;
  /** The board in play: the givens, perhaps more. */
  readonly grid: Cells;
}

/**
 * The level that options pin, or null when they pin none.
 * @throws InvalidOptions when they make no puzzle of this size
 */
export function pinnedLevel(size: number, options: SudokuOptions): Level | null {
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
