import type { KernelThread } from '../lowering/gpujs.ts';
import { Kernel, type ScalarFunction } from '../lowering/kernel.ts';
import type { Walk } from '../lowering/layout.ts';
import { cutBox, isBindable, offsetOf, partOf, type Room, spanOf } from '../lowering/parts.ts';
import { asGiven, into } from '../lowering/pieces.ts';
import type { Step, Value } from '../lowering/step.ts';
import { copyBox } from '../shaders/copy.ts';

/** Functions of the graph's element-wise operations: flags are 0 or 1. */
const functions: Readonly<Record<string, ScalarFunction>> = {
  neg: function neg(x: number): number {
    return -x;
  },
  exp: function exp(x: number): number {
    return Math.exp(x);
  },
  log: function log(x: number): number {
    return Math.log(x);
  },
  sqrt: function sqrt(x: number): number {
    return Math.sqrt(x);
  },
  reciprocal: function reciprocal(x: number): number {
    return 1 / x;
  },
  abs: function abs(x: number): number {
    return Math.abs(x);
  },
  sign: function sign(x: number): number {
    return x > 0 ? 1 : x < 0 ? -1 : 0;
  },
  // Both from exp(−|x|), which never overflows.
  sigmoid: function sigmoid(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  },
  silu: function silu(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? (x * e) / (1 + e) : x / (1 + e);
  },
  tanh: function tanh(x: number): number {
    const e = Math.exp(-2 * Math.abs(x));
    const t = (1 - e) / (1 + e);
    return x < 0 ? -t : t;
  },
  cos: function cos(x: number): number {
    return Math.cos(x);
  },
  sin: function sin(x: number): number {
    return Math.sin(x);
  },
  relu: function relu(x: number): number {
    return Math.max(x, 0);
  },
  logicalNot: function logicalNot(x: number): number {
    return 1 - x;
  },
  truncate: function truncate(x: number): number {
    return x < 0 ? Math.ceil(x) : Math.floor(x);
  },
  isNotZero: function isNotZero(x: number): number {
    return x === 0 ? 0 : 1;
  },
  add: function add(a: number, b: number): number {
    return a + b;
  },
  sub: function sub(a: number, b: number): number {
    return a - b;
  },
  mul: function mul(a: number, b: number): number {
    return a * b;
  },
  div: function div(a: number, b: number): number {
    return a / b;
  },
  maximum: function maximum(a: number, b: number): number {
    return Math.max(a, b);
  },
  minimum: function minimum(a: number, b: number): number {
    return Math.min(a, b);
  },
  less: function less(a: number, b: number): number {
    return a < b ? 1 : 0;
  },
  greater: function greater(a: number, b: number): number {
    return a > b ? 1 : 0;
  },
  equal: function equal(a: number, b: number): number {
    return a === b ? 1 : 0;
  },
  logicalAnd: function logicalAnd(a: number, b: number): number {
    return a * b;
  },
  logicalOr: function logicalOr(a: number, b: number): number {
    return Math.max(a, b);
  },
  where: function where(condition: number, a: number, b: number): number {
    return condition !== 0 ? a : b;
  },
  /** exp(x − shift) / total: a softmax whose rows' sums are known. */
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

/** Axes that a kernel can walk with strides of its own. */
export const MAX_AXES = 3;

const kernels = new Map<string, Kernel>();

/** Applies a function to elements of up to three operands; the walk has at most {@link MAX_AXES} axes. */
export function pointwise(
  name: string,
  operands: readonly Value[],
  walk: Walk,
  result: Value,
  room: Room,
): Step[] {
  if ([...operands, result].every(value => isBindable(value, room))) {
    return [applied(name, operands, walk, result)];
  }
  const { extents, strides } = walk;
  const dense = extents.map((_, axis) => extents.slice(0, axis).reduce((a, b) => a * b, 1));
  return cutBox(extents, [...strides, dense], room.most).flatMap(piece => {
    const steps: Step[] = [];
    const given = operands.map((value, i) => {
      const part = partOf(value, offsetOf(piece, strides[i]), spanOf(piece.extents, strides[i]));
      return asGiven(room, part, steps);
    });
    const own = { extents: piece.extents, strides };
    const at = offsetOf(piece, dense);
    const length = piece.extents.reduce((a, b) => a * b, 1);
    if (spanOf(piece.extents, dense) === length) {
      return [...steps, ...into(room, partOf(result, at, length), out => [applied(name, given, own, out)])];
    }
    const out = room.allocate(length);
    const packed = piece.extents.map((_, axis) => piece.extents.slice(0, axis).reduce((a, b) => a * b, 1));
    const copies = copyBox(
      piece.extents,
      { value: out, start: 0, strides: packed },
      { value: result, start: at, strides: dense },
      room,
    );
    return [...steps, applied(name, given, own, out), ...copies];
  });
}

function applied(name: string, operands: readonly Value[], { extents, strides }: Walk, result: Value): Step {
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
    calls: { f: functions[name] },
  });
  kernels.set(key, kernel);
  return kernel;
}
