import { evaluate } from './expression.ts';

export const RIGHT = 1;
export const RIGHT_NUMBERS = 0.1;
export const WRONG = 0;

/** Values this close to the target count as equal. */
const TOLERANCE = 1e-5;

export interface Score {
  readonly reward: number;
  /** Value of the expression; null where it is malformed or divides by zero. */
  readonly value: number | null;
}

/** 1 for the target from exactly the given numbers, 0.1 for exactly the given numbers, else 0. */
export function score(text: string, nums: readonly number[], target: number): Score {
  const expression = evaluate(text);
  if (!expression) return { reward: WRONG, value: null };
  const value = Number.isFinite(expression.value) ? expression.value : null;
  if (!sameNumbers(expression.numbers, nums)) return { reward: WRONG, value };
  const right = value !== null && Math.abs(value - target) < TOLERANCE;
  return { reward: right ? RIGHT : RIGHT_NUMBERS, value };
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a.length !== b.length) return false;
  const wanted = b.toSorted((x, y) => x - y);
  return a.toSorted((x, y) => x - y).every((value, i) => value === wanted[i]);
}
