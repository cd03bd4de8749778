import { operations } from '../../../graph/graph.ts';
import type { ScalarFunction } from '../../../graph/operations/operation.ts';
import { Kernel, type KernelThread } from '../lowering/kernel.ts';
import {
  cutBox,
  type DeviceValue,
  isBindable,
  type KernelDispatch,
  offsetOf,
  type ScratchSpace,
  type StridedLayout,
  sliceOf,
  spanOf,
} from '../lowering/program.ts';
import { bindable, copyBox, writeBindable } from '../shaders/copy.ts';

/** Functions besides those of the graph's elementwise operations. */
const functions: Readonly<Record<string, ScalarFunction | undefined>> = {
  truncate: function truncate(x: number): number {
    return x < 0 ? Math.ceil(x) : Math.floor(x);
  },
  isNotZero: function isNotZero(x: number): number {
    return x === 0 ? 0 : 1;
  },
  /** exp(x − shift) / total: a softmax of rows with known sums. */
  weight: function weight(x: number, shift: number, total: number): number {
    return Math.exp(x - shift) / total;
  },
  /** exp((x − shift) · scale): a weight at a temperature. */
  tempered: function tempered(x: number, shift: number, scale: number): number {
    return Math.exp((x - shift) * scale);
  },
  logWeight: function logWeight(x: number, shift: number, total: number): number {
    return x - shift - Math.log(total);
  },
};

/** The function called, as every kernel below names it. */
declare function f(...x: number[]): number;

function rowOfOne(this: KernelThread, a: number[], ax: number): number {
  return f(a[this.thread.x * ax]);
}
function rowOfTwo(this: KernelThread, a: number[], b: number[], ax: number, bx: number): number {
  return f(a[this.thread.x * ax], b[this.thread.x * bx]);
}
function rowOfThree(
  this: KernelThread,
  a: number[],
  b: number[],
  c: number[],
  ax: number,
  bx: number,
  cx: number,
): number {
  return f(a[this.thread.x * ax], b[this.thread.x * bx], c[this.thread.x * cx]);
}
function boxOfTwo(
  this: KernelThread,
  a: number[],
  b: number[],
  ax: number,
  ay: number,
  az: number,
  bx: number,
  by: number,
  bz: number,
): number {
  return f(
    a[this.thread.z * az + this.thread.y * ay + this.thread.x * ax],
    b[this.thread.z * bz + this.thread.y * by + this.thread.x * bx],
  );
}
function boxOfThree(
  this: KernelThread,
  a: number[],
  b: number[],
  c: number[],
  ax: number,
  ay: number,
  az: number,
  bx: number,
  by: number,
  bz: number,
  cx: number,
  cy: number,
  cz: number,
): number {
  return f(
    a[this.thread.z * az + this.thread.y * ay + this.thread.x * ax],
    b[this.thread.z * bz + this.thread.y * by + this.thread.x * bx],
    c[this.thread.z * cz + this.thread.y * cy + this.thread.x * cx],
  );
}

function functionOf(name: string): ScalarFunction {
  const found = functions[name] ?? operations.get(name)?.elementwise?.scalar;
  if (found === undefined) throw new Error(`no elementwise operation is named ${name}`);
  return found;
}

/** Axes that a kernel can walk with separate strides. */
export const MAX_AXES = 3;

const kernels = new Map<string, Kernel>();

/** Applies a function to elements of up to three operands; the walk has at most {@link MAX_AXES} axes. */
export function pointwise(
  name: string,
  operands: readonly DeviceValue[],
  walk: StridedLayout,
  result: DeviceValue,
  scratch: ScratchSpace,
): KernelDispatch[] {
  if ([...operands, result].every(value => isBindable(value, scratch))) {
    return [applied(name, operands, walk, result)];
  }
  const { extents, strides } = walk;
  const dense = extents.map((_, axis) => extents.slice(0, axis).reduce((a, b) => a * b, 1));
  return cutBox(extents, [...strides, dense], scratch.most).flatMap(piece => {
    const steps: KernelDispatch[] = [];
    const given = operands.map((value, i) => {
      const part = sliceOf(value, offsetOf(piece, strides[i]), spanOf(piece.extents, strides[i]));
      return bindable(scratch, part, steps);
    });
    const own = { extents: piece.extents, strides };
    const at = offsetOf(piece, dense);
    const length = piece.extents.reduce((a, b) => a * b, 1);
    if (spanOf(piece.extents, dense) === length) {
      return [
        ...steps,
        ...writeBindable(scratch, sliceOf(result, at, length), out => [applied(name, given, own, out)]),
      ];
    }
    const out = scratch.allocate(length);
    const packed = piece.extents.map((_, axis) => piece.extents.slice(0, axis).reduce((a, b) => a * b, 1));
    const copies = copyBox(
      piece.extents,
      { value: out, start: 0, strides: packed },
      { value: result, start: at, strides: dense },
      scratch,
    );
    return [...steps, applied(name, given, own, out), ...copies];
  });
}

function applied(
  name: string,
  operands: readonly DeviceValue[],
  { extents, strides }: StridedLayout,
  result: DeviceValue,
): KernelDispatch {
  const flat = extents.length === 1;
  const size = flat ? extents : [...extents, 1].slice(0, MAX_AXES);
  const numbers = strides.flatMap(own => (flat ? own : [...own, 0].slice(0, MAX_AXES)));
  return kernelOf(name, operands.length, flat).step(
    size,
    [...operands.map(value => ({ value })), ...numbers],
    result,
  );
}

function kernelOf(name: string, operands: number, flat: boolean): Kernel {
  const key = `${name} ${flat}`;
  const known = kernels.get(key);
  if (known !== undefined) return known;
  const form = flat ? [rowOfOne, rowOfTwo, rowOfThree][operands - 1] : [boxOfTwo, boxOfThree][operands - 2];
  const strides = operands * (flat ? 1 : MAX_AXES);
  const kernel = new Kernel(form, [...Array(operands).fill('Array'), ...Array(strides).fill('Integer')], {
    name,
    calls: { f: functionOf(name) },
  });
  kernels.set(key, kernel);
  return kernel;
}
