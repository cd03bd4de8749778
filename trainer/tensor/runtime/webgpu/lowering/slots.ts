import type { Program } from './program.ts';
import { wholeOf } from './slices.ts';
import type { DeviceValue, KernelDispatch } from './step.ts';

/** A free slot serves arrays of at least this share of its length. */
const MIN_USE = 0.5;

/** Which arrays of a program share memory. */
export interface SlotPlan {
  /** Lengths in elements. */
  readonly slots: readonly number[];
  /** Slot of every array that is neither an input, a parameter nor a constant. */
  readonly slotOf: ReadonlyMap<DeviceValue, number>;
}

/**
 * Gives arrays that are never needed at the same time the same slot. An array lives from the first step that touches it to
 * the last; outputs live on.
 */
export function planSlots(program: Program): SlotPlan {
  const fixed = new Set<DeviceValue>([
    ...program.inputs.values(),
    ...program.parameters.values(),
    ...program.constants.keys(),
  ]);
  const lastUse = new Map<DeviceValue, number>();
  program.steps.forEach((step, index) => {
    for (const value of arraysOf(step)) lastUse.set(value, index);
  });
  for (const value of program.outputs.values()) lastUse.set(value, program.steps.length);

  const slots: number[] = [];
  const free: number[] = [];
  const slotOf = new Map<DeviceValue, number>();
  const take = (length: number): number => {
    const fits = free.filter(slot => slots[slot] >= length && length >= slots[slot] * MIN_USE);
    if (fits.length === 0) return slots.push(length) - 1;
    const best = fits.reduce((a, b) => (slots[b] < slots[a] ? b : a));
    free.splice(free.indexOf(best), 1);
    return best;
  };
  program.steps.forEach((step, index) => {
    const touched = new Set(arraysOf(step).filter(value => !fixed.has(value)));
    for (const value of touched) if (!slotOf.has(value)) slotOf.set(value, take(value.length));
    for (const value of touched) if (lastUse.get(value) === index) free.push(slotOf.get(value)!);
  });
  return { slots, slotOf };
}

function arraysOf({ reads, writes }: KernelDispatch): DeviceValue[] {
  return [...reads, ...writes].map(wholeOf);
}
