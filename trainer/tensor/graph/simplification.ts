import { GraphError, type Shape, sameShape, sizeOf, type Tensor, type TypedArray } from './tensor.ts';

/** Constants up to this many elements are computed when they are built. */
const FOLDED_ELEMENTS = 4096;
/** Rows per output from which a scale of the columns moves from the left side of a product to the right one. */
const FOLDING_ROWS = 2;

/** True if the tensor is a constant that holds only this value. */
export function isConstant(tensor: Tensor, value: number): boolean {
  if (tensor.operation === 'broadcastTo') return isConstant(tensor.inputs[0], value);
  return (
    tensor.operation === 'constant' && (tensor.attributes.data as TypedArray).every(entry => entry === value)
  );
}

/** True if a value of this shape is computed while the graph is built, where its inputs are known. */
export function isSmall(shape: Shape): boolean {
  return sizeOf(shape) <= FOLDED_ELEMENTS;
}

export function isSmallConstant(tensor: Tensor): boolean {
  return tensor.operation === 'constant' && isSmall(tensor.shape);
}

/** True if broadcasting `other` against `x` keeps the shape of `x`. */
export function covers(x: Tensor, other: Tensor): boolean {
  const lead = x.shape.length - other.shape.length;
  return lead >= 0 && other.shape.every((extent, i) => extent === 1 || extent === x.shape[lead + i]);
}

/**
 * Splits a left side x · columns, with one factor per column and clearly more rows than the matrix on the right
 * has outputs: scaling the smaller right side instead is the same product.
 */
export function columnScale(
  a: Tensor,
  b: Tensor,
  transposeB: boolean,
): [x: Tensor, columns: Tensor] | undefined {
  if (a.operation !== 'mul' || b.shape.length !== 2) return undefined;
  const width = a.shape[a.shape.length - 1];
  const columns = a.inputs.findIndex(input => sameShape(input.shape, [width]));
  const x = a.inputs[1 - columns];
  if (columns === -1 || !sameShape(x.shape, a.shape)) return undefined;
  const rows = sizeOf(a.shape) / width;
  const outputs = b.shape[transposeB ? 0 : 1];
  return rows >= FOLDING_ROWS * outputs ? [x, a.inputs[columns]] : undefined;
}

/** The shape `to` with its free extent, −1, filled in. @throws GraphError when it does not fit */
export function resolveShape(from: Shape, to: Shape): Shape {
  const free = to.indexOf(-1);
  if (free === -1) return [...to];
  const rest = sizeOf(to.with(free, 1));
  const extent = sizeOf(from) / rest;
  if (to.indexOf(-1, free + 1) !== -1 || !Number.isInteger(extent)) {
    throw new GraphError(`reshape: [${from.join(',')}] does not fit [${to.join(',')}]`);
  }
  return to.with(free, extent);
}
