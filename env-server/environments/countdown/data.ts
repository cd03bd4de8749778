import type { JsonObject } from '../../../shared/json.ts';
import { InvalidField, numberField, numbersField } from '../core/datasets/records.ts';

export type Puzzle = { readonly nums: readonly number[]; readonly target: number };

const MAX_NUMBERS = 6;

/** A row of the public Countdown data. @throws InvalidField */
export function readPuzzle(record: JsonObject): Puzzle {
  const nums = numbersField(record, 'nums');
  if (nums.length === 0 || nums.length > MAX_NUMBERS || !nums.every(isNatural)) {
    throw new InvalidField('nums', `expected 1 to ${MAX_NUMBERS} integers from 0`);
  }
  return { nums, target: numberField(record, 'target') };
}

function isNatural(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Level identity of a puzzle: numbers and target; the order of the numbers does not matter. */
export function puzzleKey({ nums, target }: Puzzle): string {
  return `${nums.toSorted((a, b) => a - b).join(' ')} = ${target}`;
}
