import { copyBox } from '../shaders/copy.ts';
import { ALIGNMENT, isBindable, partOf, type Room } from './parts.ts';
import type { Step, Value } from './step.ts';

/** An array in rows of `width` elements. */
export interface Rows {
  readonly value: Value;
  readonly width: number;
}

/**
 * A kernel whose rows do not depend on each other, over as many of them at a time as a shader can be given. Where that is all
 * of them, it runs once over the arrays as they are.
 *
 * @param operands each `rows` rows
 * @param make steps for some of the rows: their number, operands and result
 */
export function byRows(
  room: Room,
  rows: number,
  operands: readonly Rows[],
  result: Rows,
  make: (rows: number, operands: readonly Value[], result: Value) => readonly Step[],
): Step[] {
  const all = [...operands, result];
  if (all.every(({ value }) => isBindable(value, room))) {
    return [
      ...make(
        rows,
        operands.map(({ value }) => value),
        result.value,
      ),
    ];
  }
  const fitting = Math.max(1, Math.floor(room.most / Math.max(...all.map(({ width }) => width))));
  const size = fitting > ALIGNMENT ? fitting - (fitting % ALIGNMENT) : fitting;
  const steps: Step[] = [];
  for (let first = 0; first < rows; first += size) {
    const count = Math.min(size, rows - first);
    const part = ({ value, width }: Rows) => partOf(value, first * width, count * width);
    const given = operands.map(operand => asGiven(room, part(operand), steps));
    steps.push(...into(room, part(result), own => make(count, given, own)));
  }
  return steps;
}

/** A part that a shader can be given: itself, or a copy where it begins between places at which a binding may. */
export function asGiven(room: Room, part: Value, steps: Step[]): Value {
  if (isBindable(part, room) || part.length > room.most) return part;
  const copy = room.allocate(part.length);
  steps.push(...copyBox([part.length], flat(part), flat(copy), room));
  return copy;
}

/** Steps that write a part, through an array of their own where it begins between places at which a binding may. */
export function into(room: Room, part: Value, make: (own: Value) => readonly Step[]): Step[] {
  if (isBindable(part, room) || part.length > room.most) return [...make(part)];
  const own = room.allocate(part.length);
  return [...make(own), ...copyBox([part.length], flat(own), flat(part), room)];
}

function flat(value: Value) {
  return { value, start: 0, strides: [1] };
}
