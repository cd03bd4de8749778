import type { Cells } from './board.ts';

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
