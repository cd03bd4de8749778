import type { Json } from '../../../shared/json.ts';
import { shippedRecords } from '../core/datasets/records.ts';

/** A test of a program: what it reads and prints, or what its function is given and returns. */
export type Test =
  | { readonly kind: 'stdin'; readonly input: string; readonly output: string }
  | { readonly kind: 'call'; readonly arguments: readonly Json[]; readonly result: Json };

export type Task = {
  readonly name: string;
  readonly statement: string;
  /** Starter code; empty where there is none. */
  readonly starter: string;
  /** The function that tests call, perhaps a method of a class `Solution`; null where programs read and print. */
  readonly entry: string | null;
  readonly tests: readonly Test[];
  /** A program that passes, where one is known. */
  readonly solution: string;
};

/** Nesting depth of arguments and results. */
export const DEEPEST_VALUE = 64;

/** True if lists and objects are nested more than `levels` deep. */
export function isDeeperThan(value: Json, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  return Object.values(value).some(part => isDeeperThan(part, levels - 1));
}

/** The shipped tasks, in the order in which seeds number them: a new one comes last. Their solutions pass their tests. */
export const TASKS: readonly Task[] = shippedRecords(new URL('./tasks.jsonl', import.meta.url));
