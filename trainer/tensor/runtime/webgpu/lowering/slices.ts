import type { DeviceValue } from './step.ts';

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
export interface BoxSlice {
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
