import type { Json } from '../../../shared/json.ts';
import type { ObservationFormat } from '../core/environment.ts';
import type { ObservationSpaces } from '../core/space.ts';
import { COUNT, dict, integers, text } from '../core/spaces.ts';
import { type Cells, countBlanks, isConflicting, toRows } from './board.ts';
import type { SudokuConfig } from './config.ts';
import type { SudokuState } from './state.ts';

/** Most characters of a board with what is said below it. */
export const MAX_OBSERVATION_LENGTH = 4096;

export function observationSpaces({ size }: SudokuConfig): ObservationSpaces {
  const board = integers(0, size, size, size);
  return {
    text: text(MAX_OBSERVATION_LENGTH),
    structured: dict({ size: COUNT, puzzle: board, grid: board, steps: COUNT, max_steps: COUNT }),
  };
}

export function observe(state: SudokuState, format: ObservationFormat): Json {
  const { size, puzzle, grid, steps, maxSteps, feedback } = state;
  if (format === 'structured') {
    return { size, puzzle: toRows(size, puzzle), grid: toRows(size, grid), steps, max_steps: maxSteps };
  }
  const board = boardText(state);
  if (format === 'grid') return board;
  const lines = [board, `Empty cells: ${countBlanks(grid)}. Placements left: ${maxSteps - steps}.`];
  if (feedback) lines.push(feedback);
  return lines.join('\n');
}

function boardText({ size, puzzle, grid }: SudokuState): string {
  const box = Math.sqrt(size);
  const width = String(size).length + 2;
  const lines: string[] = [];
  for (let row = 0; row < size; row++) {
    if (row > 0 && row % box === 0) {
      lines.push(
        Array(box)
          .fill('-'.repeat(box * (width + 1) - 1))
          .join('-+-'),
      );
    }
    const words: string[] = [];
    for (let col = 0; col < size; col++) {
      if (col > 0 && col % box === 0) words.push('|');
      const cell = row * size + col;
      words.push(cellText(size, puzzle, grid, cell).padStart(width));
    }
    lines.push(words.join(' '));
  }
  return lines.join('\n');
}

function cellText(size: number, puzzle: Cells, grid: Cells, cell: number): string {
  if (grid[cell] === 0) return '. ';
  if (puzzle[cell] !== 0) return `[${grid[cell]}]`;
  return isConflicting(size, grid, cell) ? `*${grid[cell]}*` : `${grid[cell]} `;
}
