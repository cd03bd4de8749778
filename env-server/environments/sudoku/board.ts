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

/** Supported sizes: the side of the grid; boxes have the side √size. */
export const SIZES = [4, 9, 16] as const;

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

export function toRows(size: number, cells: Cells): number[][] {
  return Array.from({ length: size }, (_, row) => cells.slice(row * size, (row + 1) * size));
}
