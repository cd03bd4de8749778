import type { Cells } from './board.ts';

export type SudokuState = {
  readonly size: number;
  readonly puzzle: Cells;
  readonly solution: Cells;
  readonly grid: Cells;
  readonly steps: number;
  readonly maxSteps: number;
  /** What the last placement led to; empty at the start. */
  readonly feedback: string;
};
