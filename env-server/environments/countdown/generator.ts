import type { Random } from '../../../shared/random.ts';
import { InvalidConfig } from '../core/environment.ts';
import { isInSplit } from '../core/splits.ts';
import type { CountdownConfig } from './config.ts';
import { type Puzzle, puzzleKey } from './data.ts';

const MAX_TRIES = 100_000;

/**
 * Numbers and a target that joining them in a random way has come to, so that there is a solution.
 * @throws InvalidConfig when the limits leave no puzzle
 */
export function drawPuzzle(config: CountdownConfig, rng: Random): Puzzle {
  const { min_nums, max_nums, max_number, max_target } = config;
  const operators = config.operators === 'plus_minus' ? ['+', '-'] : ['+', '-', '*', '/'];
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const count = min_nums + rng.integer(max_nums - min_nums + 1);
    const nums = Array.from({ length: count }, () => 1 + rng.integer(max_number));
    const target = joinAll(nums, operators, rng);
    if (target === undefined || target < 1 || target > max_target) continue;
    const puzzle = { nums, target };
    if (isInSplit(puzzleKey(puzzle), config.split)) return puzzle;
  }
  throw new InvalidConfig('/max_target', `found no puzzle in ${MAX_TRIES} tries; allow larger targets`);
}

/** Joins random pairs until one value is left; undefined as soon as one is no integer from 0. */
function joinAll(nums: readonly number[], operators: readonly string[], rng: Random): number | undefined {
  const left = nums.slice();
  while (left.length > 1) {
    const [a] = left.splice(rng.integer(left.length), 1);
    const [b] = left.splice(rng.integer(left.length), 1);
    const value = apply(rng.choice(operators), a, b);
    if (!Number.isSafeInteger(value) || value < 0) return undefined;
    left.push(value);
  }
  return left[0];
}

function apply(operator: string, a: number, b: number): number {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    default:
      return a / b;
  }
}
