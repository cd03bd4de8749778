import {
  type Graph,
  type Shape,
  sizeOf,
  stridesOf,
  type Tensor,
  type TypedArray,
} from '../../../graph/tensor.ts';
import { LoweringContext } from '../../lowering-context.ts';
import type { MatrixMultiplication } from '../device/device.ts';

/** An array of float32 on the device: a tensor's elements, integers and flags as numbers. */
export interface DeviceValue {
  readonly id: number;
  readonly length: number;
  /** Set for a part of another array: that array, and the element where the part begins. */
  readonly part?: { readonly of: DeviceValue; readonly start: number };
}

/** Workgroups of a dispatch. */
export type Workgroups = readonly [x: number, y: number, z: number];

/** One dispatch of a compute shader over whole arrays. */
export interface KernelDispatch {
  /** Name for errors and traces. */
  readonly name: string;
  /** WGSL with the entry `main`: binding 0 holds {@link uniforms}, then come what it reads and what it writes. */
  readonly code: string;
  readonly uniforms: ArrayBuffer;
  readonly reads: readonly DeviceValue[];
  /** Written whole, or read and written in place. */
  readonly writes: readonly DeviceValue[];
  readonly groups: Workgroups;
}

/** Threads of a dimension in one workgroup of our kernels: 64 in a row, or 8 × 8. */
export const ROW_THREADS = 64;
export const TILE_THREADS = 8;
/** Workgroups that every device takes in one dimension. */
export const MAX_GROUPS = 65_535;

/**
 * Workgroups for a row of threads, folded over two dimensions where one does not reach.
 * @returns groups, and the threads of one row of groups
 */
export function workgroupGrid(threads: number): { readonly groups: Workgroups; readonly width: number } {
  const count = Math.ceil(threads / ROW_THREADS);
  const rows = Math.ceil(count / MAX_GROUPS);
  const columns = Math.ceil(count / rows);
  return { groups: [columns, rows, 1], width: columns * ROW_THREADS };
}

/** A binding begins at a multiple of this many elements (256 bytes, the most that a device may ask for). */
export const ALIGNMENT = 64;

/** Largest binding of a shader, and the source of new arrays. */
export interface ScratchSpace {
  /** Most elements of one array that a shader can bind. */
  readonly most: number;
  /** A new array. */
  allocate(length: number): DeviceValue;
}

/** A stretch of an array, in elements. */
export function sliceOf(value: DeviceValue, start: number, length: number): DeviceValue {
  if (start === 0 && length === value.length) return value;
  return { id: value.id, length, part: { of: wholeOf(value), start: startOf(value) + start } };
}

/** The array on the device that contains a value. */
export function wholeOf(value: DeviceValue): DeviceValue {
  return value.part?.of ?? value;
}

/** Element of {@link wholeOf} at which a value begins. */
export function startOf(value: DeviceValue): number {
  return value.part?.start ?? 0;
}

/** True if a shader can bind the value where it is. */
export function isBindable(value: DeviceValue, { most }: ScratchSpace): boolean {
  return value.length <= most && startOf(value) % ALIGNMENT === 0;
}

/**
 * The smallest binding that contains `length` elements from `start` on.
 * @returns that part, and where in it the elements begin
 */
export function windowOf(
  value: DeviceValue,
  start: number,
  length: number,
): { readonly value: DeviceValue; readonly start: number } {
  const from = startOf(value) + start;
  const rest = from % ALIGNMENT;
  return { value: sliceOf(wholeOf(value), from - rest, rest + length), start: rest };
}

/** Elements from the first to the last that strides reach in a box. */
export function spanOf(extents: readonly number[], strides: readonly number[]): number {
  return extents.reduce((span, extent, axis) => span + (extent - 1) * strides[axis], 1);
}

/** A box within a box, along the same axes. */
interface BoxSlice {
  readonly starts: readonly number[];
  readonly extents: readonly number[];
}

/**
 * Cuts a box until, for every operand, at most `most` elements lie between the first and the last that a piece touches,
 * or the piece is one element wide. Where possible, pieces begin at multiples of {@link ALIGNMENT}.
 */
export function cutBox(
  extents: readonly number[],
  operands: readonly (readonly number[])[],
  most: number,
): BoxSlice[] {
  const piece = [...extents];
  for (;;) {
    const over = operands.find(strides => spanOf(piece, strides) > most);
    if (over === undefined) break;
    const reach = piece.map((extent, axis) => (extent - 1) * over[axis]);
    const axis = reach.lastIndexOf(Math.max(...reach));
    if (piece[axis] === 1) break;
    const half = Math.ceil(piece[axis] / 2);
    piece[axis] = half > ALIGNMENT ? Math.ceil(half / ALIGNMENT) * ALIGNMENT : half;
  }
  let pieces: BoxSlice[] = [{ starts: [], extents: [] }];
  extents.forEach((extent, axis) => {
    const count = Math.ceil(extent / piece[axis]);
    const along = Array.from({ length: count }, (_, i) => i * piece[axis]);
    pieces = pieces.flatMap(({ starts, extents: own }) =>
      along.map(start => ({
        starts: [...starts, start],
        extents: [...own, Math.min(piece[axis], extent - start)],
      })),
    );
  });
  return pieces;
}

/** Element at which a piece begins for an operand of these strides. */
export function offsetOf({ starts }: BoxSlice, strides: readonly number[]): number {
  return starts.reduce((offset, start, axis) => offset + start * strides[axis], 0);
}

/** Iteration over operands of one shape: extents innermost first, and each operand's strides along them in elements. */
export interface StridedLayout {
  readonly extents: readonly number[];
  readonly strides: readonly (readonly number[])[];
}

/** Strides of an operand along the axes of a shape it broadcasts to, 0 where it repeats; outermost first. */
export function broadcastStrides(operand: Shape, shape: Shape): number[] {
  const own = stridesOf(operand);
  return shape.map((_, axis) => {
    const at = axis - (shape.length - operand.length);
    return at < 0 || operand[at] === 1 ? 0 : own[at];
  });
}

/** Merges axes that all operands walk as one; at least one axis stays. Strides outermost first. */
export function collapse(shape: Shape, strides: readonly (readonly number[])[]): StridedLayout {
  const extents: number[] = [];
  const merged: number[][] = strides.map(() => []);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (shape[axis] === 1) continue;
    const last = extents.length - 1;
    const continues = strides.every((own, i) => last >= 0 && own[axis] === merged[i][last] * extents[last]);
    if (continues) {
      extents[last] *= shape[axis];
      continue;
    }
    extents.push(shape[axis]);
    strides.forEach((own, i) => {
      merged[i].push(own[axis]);
    });
  }
  if (extents.length === 0) {
    extents.push(sizeOf(shape));
    for (const own of merged) own.push(0);
  }
  return { extents, strides: merged };
}

/** A shape cut at one run of neighboring axes: [outer, middle, inner]. */
export interface AxisSplit {
  readonly outer: number;
  readonly middle: number;
  readonly inner: number;
}

/** @param end axis after the last one of the middle */
export function splitAxes(shape: Shape, start: number, end = start + 1): AxisSplit {
  return {
    outer: sizeOf(shape.slice(0, start)),
    middle: sizeOf(shape.slice(start, end)),
    inner: sizeOf(shape.slice(end)),
  };
}

/** A graph as dispatches over arrays on the device. */
export interface Program {
  readonly steps: readonly KernelDispatch[];
  readonly inputs: ReadonlyMap<string, DeviceValue>;
  readonly parameters: ReadonlyMap<string, DeviceValue>;
  readonly outputs: ReadonlyMap<string, DeviceValue>;
  /** Contents that never change. */
  readonly constants: ReadonlyMap<DeviceValue, Float32Array>;
}

/** Collects the program while a graph is lowered. Tensors that are views of another tensor share its array. */
export class ProgramBuilder extends LoweringContext<DeviceValue> implements ScratchSpace {
  /** The device's method of matrix multiplication. */
  readonly products: MatrixMultiplication;
  readonly most: number;
  readonly #steps: KernelDispatch[] = [];
  readonly #constants = new Map<DeviceValue, Float32Array>();
  readonly #shared = new Map<string, DeviceValue>();
  #count = 0;

  constructor(graph: Graph, products: MatrixMultiplication, most: number) {
    super(graph);
    this.products = products;
    this.most = most;
  }

  /** An array that no tensor has yet. */
  allocate(length: number): DeviceValue {
    return { id: this.#count++, length };
  }

  /** A new array for a tensor. */
  place(tensor: Tensor): DeviceValue {
    const value = this.allocate(sizeOf(tensor.shape));
    this.bind(tensor, value);
    return value;
  }

  /** The array under a key, made at the first request: for values that several nodes share. */
  share(key: string, make: () => DeviceValue): DeviceValue {
    const value = this.#shared.get(key) ?? make();
    this.#shared.set(key, value);
    return value;
  }

  constant(tensor: Tensor): DeviceValue {
    const value = this.place(tensor);
    this.#constants.set(value, Float32Array.from(tensor.attributes.data as TypedArray));
    return value;
  }

  /** An array of one number. */
  scalar(number: number): DeviceValue {
    return this.share(`scalar ${number}`, () => {
      const value = this.allocate(1);
      this.#constants.set(value, Float32Array.of(number));
      return value;
    });
  }

  add(...steps: readonly KernelDispatch[]): void {
    this.#steps.push(...steps);
  }

  finish(): Program {
    const valuesOf = (tensors: ReadonlyMap<string, Tensor>) =>
      new Map([...tensors].map(([name, tensor]) => [name, this.valueOf(tensor)]));
    return {
      steps: this.#steps,
      inputs: valuesOf(this.graph.inputs),
      parameters: valuesOf(this.graph.parameters),
      outputs: valuesOf(this.graph.outputs),
      constants: this.#constants,
    };
  }
}
