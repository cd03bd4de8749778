import { Kernel, type KernelThread } from '../lowering/kernel.ts';
import {
  type AxisSplit,
  type DeviceValue,
  type KernelDispatch,
  type ScratchSpace,
  sliceOf,
} from '../lowering/program.ts';
import { inRowSlices } from '../shaders/copy.ts';

/**
 * Elements that one thread folds. Longer axes are folded in rounds, so there are enough threads and rounding errors
 * stay small.
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

/**
 * The same along rows [rows, count] → [rows, blocks], blocks counting along x. The elements of a block are as many apart as
 * there are blocks, so that neighbors read neighbors.
 */
const rowSum = new Kernel(
  function rowSum(this: KernelThread, x: number[][], count: number, blocks: number): number {
    let total = 0;
    for (let i = this.thread.x; i < count; i += blocks) total += x[this.thread.y][i];
    return total;
  },
  ['Array', 'Integer', 'Integer'],
);

const rowLargest = new Kernel(
  function rowLargest(this: KernelThread, x: number[][], count: number, blocks: number): number {
    let most = x[this.thread.y][this.thread.x];
    for (let i = this.thread.x + blocks; i < count; i += blocks) most = Math.max(most, x[this.thread.y][i]);
    return most;
  },
  ['Array', 'Integer', 'Integer'],
);

const rowSumOfSquares = new Kernel(
  function rowSumOfSquares(this: KernelThread, x: number[][], count: number, blocks: number): number {
    let total = 0;
    for (let i = this.thread.x; i < count; i += blocks) total += x[this.thread.y][i] * x[this.thread.y][i];
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
    blocks: number,
  ): number {
    let total = 0;
    for (let i = this.thread.x; i < count; i += blocks)
      total += Math.exp(x[this.thread.y][i] - shift[this.thread.y]);
    return total;
  },
  ['Array', 'Array', 'Integer', 'Integer'],
);

export type Reduction = 'sum' | 'max';

/**
 * Folds the middle of x [outer, middle, inner] into `result` [outer, inner]; `room` holds the values between rounds.
 */
export function reduceMiddle(
  how: Reduction,
  x: DeviceValue,
  cut: AxisSplit,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const { outer, middle, inner } = cut;
  if (inner === 1) return reduceRows(how, x, { rows: outer, count: middle }, result, scratch);
  const blocks = Math.ceil(middle / BLOCK);
  const target = blocks === 1 ? result : scratch.allocate(outer * blocks * inner);
  const steps = foldBlocks(how, x, cut, target, scratch);
  if (blocks === 1) return steps;
  return [...steps, ...reduceMiddle(how, target, { outer, middle: blocks, inner }, result, scratch)];
}

/** One round: blocks of the middle of x [outer, middle, inner] into `target` [outer, blocks, inner]. */
function foldBlocks(
  how: Reduction,
  x: DeviceValue,
  { outer, middle, inner }: AxisSplit,
  target: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const kernel = how === 'sum' ? sum : largest;
  const blocks = Math.ceil(middle / BLOCK);
  if (middle * inner <= scratch.most) {
    const rows = { value: x, width: middle * inner };
    return inRowSlices(
      scratch,
      outer,
      [rows],
      { value: target, width: blocks * inner },
      (count, [own], out) => [
        kernel.step(
          [inner, blocks, count],
          [{ value: own, extents: [inner, middle, count] }, middle, BLOCK],
          out,
        ),
      ],
    );
  }
  const steps: KernelDispatch[] = [];
  for (let row = 0; row < outer; row++) {
    const whole = Math.floor(middle / BLOCK);
    for (const [first, count, depth] of [
      [0, whole, BLOCK],
      [whole, blocks - whole, middle % BLOCK],
    ]) {
      if (count === 0) continue;
      const own = sliceOf(x, (row * middle + first * BLOCK) * inner, count * depth * inner);
      const out = sliceOf(target, (row * blocks + first) * inner, count * inner);
      const rows = { value: own, width: depth * inner };
      steps.push(
        ...inRowSlices(scratch, count, [rows], { value: out, width: inner }, (some, [part], into) => [
          kernel.step(
            [inner, some, 1],
            [{ value: part, extents: [inner, some * depth, 1] }, some * depth, depth],
            into,
          ),
        ]),
      );
    }
  }
  return steps;
}

/** Reduction of a row, of its squares, or of the weights of its elements above a limit. */
export type RowReduction = Reduction | 'squares' | { readonly weightsAbove: DeviceValue };

/** Folds rows x [rows, count] into `result` [rows]. */
export function reduceRows(
  how: RowReduction,
  x: DeviceValue,
  { rows, count }: { readonly rows: number; readonly count: number },
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  const blocks = Math.ceil(count / BLOCK);
  const target = blocks === 1 ? result : scratch.allocate(rows * blocks);
  const operands = [
    { value: x, width: count },
    ...(typeof how === 'object' ? [{ value: how.weightsAbove, width: 1 }] : []),
  ];
  const steps = inRowSlices(
    scratch,
    rows,
    operands,
    { value: target, width: blocks },
    (some, [own, above], out) => {
      const size = [blocks, some];
      const view = { value: own, extents: [count, some] };
      if (typeof how === 'object') {
        return [rowSumOfWeights.step(size, [view, { value: above }, count, blocks], out)];
      }
      const kernel = { sum: rowSum, max: rowLargest, squares: rowSumOfSquares }[how];
      return [kernel.step(size, [view, count, blocks], out)];
    },
  );
  if (blocks === 1) return steps;
  return [
    ...steps,
    ...reduceRows(how === 'max' ? 'max' : 'sum', target, { rows, count: blocks }, result, scratch),
  ];
}
