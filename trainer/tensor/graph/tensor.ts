/** Element types a tensor can have. `bool` is stored as one byte, 0 or 1; `int8` and `uint8` are codes of quantized weights. */
export type DType = 'float32' | 'int32' | 'bool' | 'int8' | 'uint8';

/** Extents, outermost first; `[]` is a scalar. */
export type Shape = readonly number[];

/** Inputs and outputs of an executable; a `Uint8Array` holds `bool`, too. */
export type TypedArray = Float32Array | Int32Array | Uint8Array | Int8Array;

export interface TensorType {
  readonly dtype: DType;
  readonly shape: Shape;
}

/** Plain settings of an operation: axes, permutations, flags, constant data. */
export type AttributeValue = number | boolean | string | readonly number[] | TypedArray;
export type Attributes = Readonly<Record<string, AttributeValue>>;

/** One value of a tensor program: the operation that makes it, and what that operation reads. */
export interface Tensor extends TensorType {
  /** Position in the builder; an input's id is always smaller than its reader's. */
  readonly id: number;
  /** Name of the operation, a key of the operations table, or `input`, `parameter`, `constant`. */
  readonly operation: string;
  readonly inputs: readonly Tensor[];
  readonly attributes: Attributes;
}

/** An immutable tensor program. Nodes are in topological order and each is needed by an output. */
export interface Graph {
  readonly nodes: readonly Tensor[];
  readonly inputs: ReadonlyMap<string, Tensor>;
  readonly parameters: ReadonlyMap<string, Tensor>;
  readonly outputs: ReadonlyMap<string, Tensor>;
}

/** An error in how a tensor program is put together: shapes, types or names that do not fit. */
export class GraphError extends Error {
  override readonly name = 'GraphError';
}

export function sizeOf(shape: Shape): number {
  let size = 1;
  for (const extent of shape) size *= extent;
  return size;
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((extent, i) => extent === b[i]);
}

/** `float32[16,128]` */
export function describe(type: TensorType): string {
  return `${type.dtype}[${type.shape.join(',')}]`;
}

/** Row-major strides in elements. */
export function stridesOf(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/**
 * Shape that two shapes broadcast to by numpy's rule.
 * @throws GraphError naming both shapes when an extent differs and neither is 1
 */
export function broadcastShapes(a: Shape, b: Shape, where: string): Shape {
  const rank = Math.max(a.length, b.length);
  const shape = new Array<number>(rank);
  for (let i = 1; i <= rank; i++) {
    const left = a[a.length - i] ?? 1;
    const right = b[b.length - i] ?? 1;
    if (left !== right && left !== 1 && right !== 1) {
      throw new GraphError(`${where}: shapes [${a.join(',')}] and [${b.join(',')}] do not broadcast`);
    }
    shape[rank - i] = left === 1 ? right : left;
  }
  return shape;
}

/**
 * Axis counted from the front; negative counts from the end.
 * @throws GraphError when it is outside the rank
 */
export function normalizeAxis(axis: number, rank: number, where: string): number {
  const normal = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(axis) || normal < 0 || normal >= rank) {
    throw new GraphError(
      `${where}: axis ${axis} is outside a tensor of rank ${rank} (0 to ${rank - 1}, or negative)`,
    );
  }
  return normal;
}

/** A typed array of the right kind, zeroed. */
export function allocate(dtype: DType, length: number): TypedArray {
  if (dtype === 'float32') return new Float32Array(length);
  if (dtype === 'int32') return new Int32Array(length);
  return dtype === 'int8' ? new Int8Array(length) : new Uint8Array(length);
}
