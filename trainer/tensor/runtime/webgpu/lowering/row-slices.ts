import { copyBox } from '../shaders/copy.ts';
import { ALIGNMENT, isBindable, type ScratchSpace, sliceOf } from './slices.ts';
import type { DeviceValue, KernelDispatch } from './step.ts';

/** An array in rows of `width` elements. */
export interface ArrayRows {
  readonly value: DeviceValue;
  readonly width: number;
}

/**
 * A kernel over independent rows, on as many rows at a time as a shader can bind. If that is all of them, it runs once
 * over the unchanged arrays.
 * @param operands each `rows` rows
 * @param make steps for some of the rows: their number, operands and result
 */
export function inRowSlices(
  scratch: ScratchSpace,
  rows: number,
  operands: readonly ArrayRows[],
  result: ArrayRows,
  make: (rows: number, operands: readonly DeviceValue[], result: DeviceValue) => readonly KernelDispatch[],
): KernelDispatch[] {
  const all = [...operands, result];
  if (all.every(({ value }) => isBindable(value, scratch))) {
    return [
      ...make(
        rows,
        operands.map(({ value }) => value),
        result.value,
      ),
    ];
  }
  const fitting = Math.max(1, Math.floor(scratch.most / Math.max(...all.map(({ width }) => width))));
  const size = fitting > ALIGNMENT ? fitting - (fitting % ALIGNMENT) : fitting;
  const steps: KernelDispatch[] = [];
  for (let first = 0; first < rows; first += size) {
    const count = Math.min(size, rows - first);
    const part = ({ value, width }: ArrayRows) => sliceOf(value, first * width, count * width);
    const given = operands.map(operand => bindable(scratch, part(operand), steps));
    steps.push(...writeBindable(scratch, part(result), own => make(count, given, own)));
  }
  return steps;
}

/**
 * A part that a shader can bind: the part itself, or a copy where it begins at an offset at which no binding may begin.
 */
export function bindable(scratch: ScratchSpace, part: DeviceValue, steps: KernelDispatch[]): DeviceValue {
  if (isBindable(part, scratch) || part.length > scratch.most) return part;
  const copy = scratch.allocate(part.length);
  steps.push(...copyBox([part.length], flat(part), flat(copy), scratch));
  return copy;
}

/**
 * Steps that write a part; through a separate array where the part begins at an offset at which no binding may begin.
 */
export function writeBindable(
  scratch: ScratchSpace,
  part: DeviceValue,
  make: (own: DeviceValue) => readonly KernelDispatch[],
): KernelDispatch[] {
  if (isBindable(part, scratch) || part.length > scratch.most) return [...make(part)];
  const own = scratch.allocate(part.length);
  return [...make(own), ...copyBox([part.length], flat(own), flat(part), scratch)];
}

function flat(value: DeviceValue) {
  return { value, start: 0, strides: [1] };
}
