import { Canvas, type Color } from '../core/drawing/painting.ts';
import type { Picture } from '../core/environment.ts';
import { isConflicting } from './board.ts';
import type { SudokuState } from './state.ts';

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
