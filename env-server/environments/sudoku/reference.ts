import type { ReferencePolicy } from '../core/environment.ts';
import { spellPlacement } from './action.ts';
import { type Cells, isLegal } from './board.ts';
import type { SudokuState } from './state.ts';

/** Every placement that would change the board without breaking a rule. */
export function legalPlacements({ size, puzzle, grid }: SudokuState): string[] {
  const placements: string[] = [];
  for (let cell = 0; cell < grid.length; cell++) {
    if (puzzle[cell] !== 0) continue;
    for (const number of legalNumbers(size, grid, cell)) placements.push(spell(size, cell, number));
  }
  return placements;
}

export const optimal: ReferencePolicy<SudokuState> = {
  title: 'The numbers of the solution, each when it is legal; wrong ones in the way are moved aside',
  plan: (state, count) => planSolution(state).slice(0, count),
};

export const random: ReferencePolicy<SudokuState> = {
  title: 'Uniformly random legal placements',
  plan(state, _count, rng) {
    const placements = legalPlacements(state);
    return placements.length > 0 ? [rng.choice(placements)] : [];
  },
};

function spell(size: number, cell: number, number: number): string {
  return spellPlacement({ row: Math.floor(cell / size) + 1, col: (cell % size) + 1, number });
}

/** Numbers other than its own that the cell can take. */
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
  /** Two wrong numbers can block each other; one of them then makes room. */
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
