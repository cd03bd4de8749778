/** Values differ if they round to different multiples of 1 / STEPS_PER_UNIT. */
const STEPS_PER_UNIT = 1e6;
/** Sets of up to this many numbers have all their values tabulated; larger ones are split. */
const MAX_TABULATED = 3;

interface SolverTerm {
  readonly value: number;
  readonly text: string;
  /** Binding strength: 2 for a number or parentheses, 1 for a product, 0 for a sum. */
  readonly rank: number;
}

/**
 * An expression that makes the target from all the numbers. Sets of up to three numbers are tabulated; larger ones are
 * split in two, and for every value of the smaller part the other part must make the complement.
 * @param nums at most six
 * @returns undefined when there is none
 */
export function solve(nums: readonly number[], target: number): string | undefined {
  const tables = new Map<number, ReadonlyMap<number, SolverTerm>>();

  const tableOf = (set: number): ReadonlyMap<number, SolverTerm> => {
    const known = tables.get(set);
    if (known) return known;
    const table = new Map<number, SolverTerm>();
    for (const [a, b] of splits(set)) {
      for (const left of tableOf(a).values()) {
        for (const right of tableOf(b).values()) {
          for (const term of joinAll(left, right)) table.set(keyOf(term.value), term);
        }
      }
    }
    if (size(set) === 1) {
      const value = nums[31 - Math.clz32(set)];
      table.set(keyOf(value), { value, text: String(value), rank: 2 });
    }
    tables.set(set, table);
    return table;
  };

  const make = (set: number, wanted: number): SolverTerm | undefined => {
    if (size(set) <= MAX_TABULATED) return tableOf(set).get(keyOf(wanted));
    for (const [smaller, larger] of splits(set)) {
      for (const part of tableOf(smaller).values()) {
        for (const { missing, join } of waysTo(wanted, part)) {
          const rest = make(larger, missing);
          const joined = rest && join(rest);
          if (joined && Math.abs(joined.value - wanted) < 1 / STEPS_PER_UNIT) return joined;
        }
        if (keyOf(wanted) === 0 && keyOf(part.value) === 0) return product(part, anyOf(larger));
      }
    }
    return undefined;
  };

  const anyOf = (set: number): SolverTerm => {
    const chosen = nums.filter((_, i) => (set >> i) & 1);
    return { value: chosen.reduce((sum, num) => sum + num, 0), text: chosen.join(' + '), rank: 0 };
  };

  return make(2 ** nums.length - 1, target)?.text;
}

/** Values that combine with a part to make `wanted`, each with the joining operation. */
function waysTo(
  wanted: number,
  part: SolverTerm,
): { missing: number; join: (rest: SolverTerm) => SolverTerm }[] {
  const { value } = part;
  const ways = [
    { missing: wanted - value, join: (rest: SolverTerm) => sum(part, rest) },
    { missing: value - wanted, join: (rest: SolverTerm) => difference(part, rest) },
    { missing: wanted + value, join: (rest: SolverTerm) => difference(rest, part) },
  ];
  if (value === 0) return ways;
  ways.push(
    { missing: wanted / value, join: rest => product(part, rest) },
    { missing: wanted * value, join: rest => quotient(rest, part) },
  );
  if (wanted !== 0) ways.push({ missing: value / wanted, join: rest => quotient(part, rest) });
  return ways;
}

function joinAll(a: SolverTerm, b: SolverTerm): SolverTerm[] {
  const joined = [sum(a, b), difference(a, b), difference(b, a), product(a, b)];
  if (b.value !== 0) joined.push(quotient(a, b));
  if (a.value !== 0) joined.push(quotient(b, a));
  return joined;
}

function sum(a: SolverTerm, b: SolverTerm): SolverTerm {
  return { value: a.value + b.value, text: `${a.text} + ${b.text}`, rank: 0 };
}

function difference(a: SolverTerm, b: SolverTerm): SolverTerm {
  return { value: a.value - b.value, text: `${a.text} - ${bracket(b, 1)}`, rank: 0 };
}

function product(a: SolverTerm, b: SolverTerm): SolverTerm {
  return { value: a.value * b.value, text: `${bracket(a, 1)} * ${bracket(b, 1)}`, rank: 1 };
}

function quotient(a: SolverTerm, b: SolverTerm): SolverTerm {
  return { value: a.value / b.value, text: `${bracket(a, 1)} / ${bracket(b, 2)}`, rank: 1 };
}

/** The text of a term in a place that requires parentheses below binding strength `rank`. */
function bracket(term: SolverTerm, rank: number): string {
  return term.rank < rank ? `(${term.text})` : term.text;
}

/** All ways to split a set (one bit a number) in two; the smaller part first. */
function* splits(set: number): Generator<[smaller: number, larger: number]> {
  for (let part = (set - 1) & set; part > 0; part = (part - 1) & set) {
    const rest = set ^ part;
    if (size(part) < size(rest) || (size(part) === size(rest) && part < rest)) yield [part, rest];
  }
}

function size(set: number): number {
  let count = 0;
  for (let left = set; left > 0; left &= left - 1) count++;
  return count;
}

function keyOf(value: number): number {
  return Math.round(value * STEPS_PER_UNIT) + 0;
}

/**
 * The signed sum of all the numbers, ± a ± b ± c, that makes the target. RAGEN keeps only such rows of the public
 * data.
 * @returns undefined when there is none
 */
export function solveBySigns(nums: readonly number[], target: number): string | undefined {
  for (let signs = 0; signs < 2 ** nums.length; signs++) {
    const signed = nums.map((value, i) => ((signs >> i) & 1 ? -value : value));
    if (signed.reduce((total, value) => total + value, 0) !== target) continue;
    return signed
      .map((value, i) => (value < 0 ? `- ${-value}` : i > 0 ? `+ ${value}` : `${value}`))
      .join(' ');
  }
  return undefined;
}
