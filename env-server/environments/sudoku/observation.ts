import type { Json } from '../../../shared/json.ts';
import { Canvas, type Color } from '../core/drawing/painting.ts';
import type { ObservationFormat, Picture } from '../core/environment.ts';
import { COUNT, dict, integers, type ObservationSpaces, text } from '../core/spaces.ts';
import { type Cells, countBlanks, isConflicting, type SudokuState, toRows } from './board.ts';
import type { SudokuConfig } from './config.ts';

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

const CELL = 40;
const THIN = 1;
const THICK = 3;
const PAPER: Color = 0xffffff;
const GIVEN_PAPER: Color = 0xeceff3;
const LINE: Color = 0x9aa0a8;
const BOX_LINE: Color = 0x30343a;
const GIVEN: Color = 0x202428;
const PLACED: Color = 0x2f6fc4;
const CONFLICT: Color = 0xc4302b;

export function render({ size, puzzle, grid }: SudokuState): Picture {
  const box = Math.sqrt(size);
  const side = size * CELL + THICK;
  const canvas = new Canvas(side, side, PAPER);
  for (let cell = 0; cell < grid.length; cell++) {
    const x = (cell % size) * CELL;
    const y = Math.floor(cell / size) * CELL;
    const given = puzzle[cell] !== 0;
    if (given) canvas.fill(x, y, CELL, CELL, GIVEN_PAPER);
    if (grid[cell] === 0) continue;
    const color = given ? GIVEN : isConflicting(size, grid, cell) ? CONFLICT : PLACED;
    canvas.label(String(grid[cell]), x + CELL / 2 + 1, y + CELL / 2 + 1, CELL * 0.7, color);
  }
  for (const thick of [false, true]) {
    for (let line = 0; line <= size; line++) {
      if ((line % box === 0) !== thick) continue;
      const width = thick ? THICK : THIN;
      canvas.fill(line * CELL, 0, width, side, thick ? BOX_LINE : LINE);
      canvas.fill(0, line * CELL, side, width, thick ? BOX_LINE : LINE);
    }
  }
  return canvas;
}
