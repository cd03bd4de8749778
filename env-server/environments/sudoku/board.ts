import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { Canvas, type Color } from '../core/drawing/painting.ts';
import type { ObservationFormat, Picture } from '../core/environment.ts';
import { choiceSetting } from '../core/settings.ts';
import { COUNT, dict, integers, type ObservationSpaces, text } from '../core/spaces.ts';
import { splitSchema } from '../core/splits.ts';

/** Share of emptied cells, rounded down. */
export const BLANK_SHARES = { easy: 0.4, medium: 0.5, hard: 0.6 } as const;
/** Placements allowed for each cell that is empty at the start. */
export const STEPS_PER_BLANK = 2;

/** Supported sizes: the side of the grid; boxes have the side √size. */
export const SIZES = [4, 9, 16] as const;

export const configSchema = closed({
  size: choiceSetting(SIZES, 4, 'Side of the board.'),
  difficulty: choiceSetting(
    ['easy', 'medium', 'hard'],
    'easy',
    'Empties 40, 50 or 60 % of the cells, always leaving one solution.',
  ),
  split: splitSchema,
  max_steps: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'Placements allowed, refused ones included; twice the empty cells when absent.',
    }),
  ),
});

const rowsSchema = (description: string) =>
  Type.Array(Type.Array(Type.Integer({ minimum: 0, maximum: 16 })), {
    minItems: 4,
    maxItems: 16,
    description,
  });

export const optionsSchema = closed({
  puzzle: Type.Optional(rowsSchema('The givens row by row, 0 for an empty cell.')),
  solution: Type.Optional(
    rowsSchema('The full board that placements are compared with; needed only where several exist.'),
  ),
  grid: Type.Optional(rowsSchema('The board in play, when it starts with more than the givens.')),
});

export type SudokuConfig = Static<typeof configSchema>;
export type SudokuOptions = Static<typeof optionsSchema>;

export type SudokuState = {
  readonly size: number;
  readonly puzzle: Cells;
  readonly solution: Cells;
  readonly grid: Cells;
  readonly steps: number;
  readonly maxSteps: number;
  /** Text about the last placement; empty at the start. */
  readonly feedback: string;
};

/** A grid row by row: 0 is empty, else a number from 1 to size. */
export type Cells = readonly number[];

interface Geometry {
  /** Rows, then columns, then boxes: the cells of each. */
  readonly units: readonly (readonly number[])[];
  /** For each cell, the other cells of its row, column and box. */
  readonly peers: readonly (readonly number[])[];
  /** For each cell, the indices of its three units. */
  readonly unitsOf: readonly (readonly [number, number, number])[];
}

const geometries = new Map<number, Geometry>();

export function geometryOf(size: number): Geometry {
  const known = geometries.get(size);
  if (known) return known;
  const box = Math.sqrt(size);
  const units: number[][] = Array.from({ length: 3 * size }, () => []);
  const unitsOf: [number, number, number][] = [];
  for (let cell = 0; cell < size * size; cell++) {
    const row = Math.floor(cell / size);
    const col = cell % size;
    const mine: [number, number, number] = [
      row,
      size + col,
      2 * size + Math.floor(row / box) * box + Math.floor(col / box),
    ];
    unitsOf.push(mine);
    for (const unit of mine) units[unit].push(cell);
  }
  const peers = unitsOf.map((mine, cell) => [
    ...new Set(mine.flatMap(unit => units[unit]).filter(other => other !== cell)),
  ]);
  const geometry = { units, peers, unitsOf };
  geometries.set(size, geometry);
  return geometry;
}

/** True if no other cell of the row, column or box of `cell` holds `number`. */
export function isLegal(size: number, cells: Cells, cell: number, number: number): boolean {
  for (const peer of geometryOf(size).peers[cell]) if (cells[peer] === number) return false;
  return true;
}

/** True if another cell of the row, column or box holds the cell's number. */
export function isConflicting(size: number, cells: Cells, cell: number): boolean {
  return cells[cell] !== 0 && !isLegal(size, cells, cell, cells[cell]);
}

/** True if every cell is filled and no number repeats in a row, column or box. */
export function isSolved(size: number, cells: Cells): boolean {
  for (let cell = 0; cell < cells.length; cell++) {
    if (cells[cell] === 0 || !isLegal(size, cells, cell, cells[cell])) return false;
  }
  return true;
}

export function countBlanks(cells: Cells): number {
  let blanks = 0;
  for (const number of cells) if (number === 0) blanks++;
  return blanks;
}

function toRows(size: number, cells: Cells): number[][] {
  return Array.from({ length: size }, (_, row) => cells.slice(row * size, (row + 1) * size));
}

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
