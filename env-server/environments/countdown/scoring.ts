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

/** Depth of brackets and signs that is still read. */
const DEEPEST = 64;

export interface Evaluation {
  /** Integers of the expression in the order written. */
  readonly numbers: readonly number[];
  /** NaN or infinite where it divides by zero. */
  readonly value: number;
}

/**
 * Reads an arithmetic expression of integers, + − * /, brackets and signs. Nothing is ever evaluated as
 * code, and nothing else is an expression: no powers, no remainders, no decimals, no hexadecimals.
 * @returns undefined when the text is not an expression
 */
export function evaluate(text: string): Evaluation | undefined {
  const tokens = text.match(/\d+|\S/g) ?? [];
  const numbers: number[] = [];
  let at = 0;

  const sum = (depth: number): number => {
    let value = product(depth);
    while (tokens[at] === '+' || tokens[at] === '-') {
      value = tokens[at++] === '+' ? value + product(depth) : value - product(depth);
    }
    return value;
  };
  const product = (depth: number): number => {
    let value = factor(depth);
    while (tokens[at] === '*' || tokens[at] === '/') {
      value = tokens[at++] === '*' ? value * factor(depth) : value / factor(depth);
    }
    return value;
  };
  const factor = (depth: number): number => {
    if (depth > DEEPEST) throw new NotAnExpression();
    const token = tokens[at++];
    if (token === '-') return -factor(depth + 1);
    if (token === '+') return factor(depth + 1);
    if (token === '(') {
      const value = sum(depth + 1);
      if (tokens[at++] !== ')') throw new NotAnExpression();
      return value;
    }
    if (token === undefined || !/^(?:0|[1-9]\d*)$/.test(token)) throw new NotAnExpression();
    numbers.push(Number(token));
    return Number(token);
  };

  try {
    const value = sum(0);
    return at === tokens.length ? { numbers, value } : undefined;
  } catch (error) {
    if (error instanceof NotAnExpression) return undefined;
    throw error;
  }
}

class NotAnExpression extends Error {}
