import type { KernelThread } from '../gpujs.ts';
import { Kernel } from '../kernel.ts';
import type { Cut } from '../layout.ts';
import type { Step, Value } from '../step.ts';

/**
 * Elements that one thread folds. Longer axes are folded in rounds, so that there are enough threads and rounding errors
 * do not pile up.
 */
const BLOCK = 64;

/** x [outer, middle, inner] → [outer, blocks, inner], blocks counting along y. */
const sum = new Kernel(
  function sum(this: KernelThread, x: number[][][], count: number, block: number): number {
    const start = this.thread.y * block;
    const end = Math.min(count, start + block);
    let total = 0;
    for (let i = start; i < end; i += 1) total += x[this.thread.z][i][this.thread.x];
    return total;
  },
  ['Array', 'Integer', 'Integer'],
);

const largest = new Kernel(
  function largest(this: KernelThread, x: number[][][], count: number, block: number): number {
    const start = this.thread.y * block;
    const end = Math.min(count, start + block);
    let most = x[this.thread.z][start][this.thread.x];
    for (let i = start + 1; i < end; i += 1) most = Math.max(most, x[this.thread.z][i][this.thread.x]);
    return most;
  },
  ['Array', 'Integer', 'Integer'],
);

/** The same along rows [rows, count], whose blocks lie side by side: → [rows, blocks], blocks counting along x. */
const rowSum = new Kernel(
  function rowSum(this: KernelThread, x: number[][], count: number, block: number): number {
    const start = this.thread.x * block;
    const end = Math.min(count, start + block);
    let total = 0;
    for (let i = start; i < end; i += 1) total += x[this.thread.y][i];
    return total;
  },
  ['Array', 'Integer', 'Integer'],
);

const rowLargest = new Kernel(
  function rowLargest(this: KernelThread, x: number[][], count: number, block: number): number {
    const start = this.thread.x * block;
    const end = Math.min(count, start + block);
    let most = x[this.thread.y][start];
    for (let i = start + 1; i < end; i += 1) most = Math.max(most, x[this.thread.y][i]);
    return most;
  },
  ['Array', 'Integer', 'Integer'],
);

const rowSumOfSquares = new Kernel(
  function rowSumOfSquares(this: KernelThread, x: number[][], count: number, block: number): number {
    const start = this.thread.x * block;
    const end = Math.min(count, start + block);
    let total = 0;
    for (let i = start; i < end; i += 1) total += x[this.thread.y][i] * x[this.thread.y][i];
    return total;
  },
  ['Array', 'Integer', 'Integer'],
);

/** Σ exp(x − shift[row]) */
const rowSumOfWeights = new Kernel(
  function rowSumOfWeights(
    this: KernelThread,
    x: number[][],
    shift: number[],
    count: number,
    block: number,
  ): number {
    const start = this.thread.x * block;
    const end = Math.min(count, start + block);
    let total = 0;
    for (let i = start; i < end; i += 1) total += Math.exp(x[this.thread.y][i] - shift[this.thread.y]);
    return total;
  },
  ['Array', 'Array', 'Integer', 'Integer'],
);

export type Fold = 'sum' | 'max';

/** Folds the middle of x [outer, middle, inner] into `result` [outer, inner]; `allocate` gives room between rounds. */
export function fold(
  how: Fold,
  x: Value,
  cut: Cut,
  result: Value,
  allocate: (length: number) => Value,
): Step[] {
  const { outer, middle, inner } = cut;
  if (inner === 1) return foldRows(how, x, outer, middle, result, allocate);
  const kernel = how === 'sum' ? sum : largest;
  const blocks = Math.ceil(middle / BLOCK);
  const target = blocks === 1 ? result : allocate(outer * blocks * inner);
  const view = { value: x, extents: [inner, middle, outer] };
  const step = kernel.step([inner, blocks, outer], [view, middle, BLOCK], target);
  if (blocks === 1) return [step];
  return [step, ...fold(how, target, { outer, middle: blocks, inner }, result, allocate)];
}

/** What can be folded along rows besides the elements themselves. */
export type RowFold = Fold | 'squares' | { readonly weightsAbove: Value };

/** Folds rows x [rows, count] into `result` [rows]. */
export function foldRows(
  how: RowFold,
  x: Value,
  rows: number,
  count: number,
  result: Value,
  allocate: (length: number) => Value,
): Step[] {
  const blocks = Math.ceil(count / BLOCK);
  const target = blocks === 1 ? result : allocate(rows * blocks);
  const size = [blocks, rows];
  const view = { value: x, extents: [count, rows] };
  const step =
    typeof how === 'object'
      ? rowSumOfWeights.step(size, [view, { value: how.weightsAbove }, count, BLOCK], target)
      : { sum: rowSum, max: rowLargest, squares: rowSumOfSquares }[how].step(
          size,
          [view, count, BLOCK],
          target,
        );
  if (blocks === 1) return [step];
  return [step, ...foldRows(how === 'max' ? 'max' : 'sum', target, rows, blocks, result, allocate)];
}
