const TOLERANCE = 1e-9;

interface Term {
  readonly value: number;
  readonly text: string;
  /** Binds as tightly as: 2 a number or brackets, 1 a product, 0 a sum. */
  readonly rank: number;
}

/**
 * An expression that makes the target from all the numbers, by trying every pair and operator in turn.
 * @returns undefined when there is none
 */
export function solve(nums: readonly number[], target: number): string | undefined {
  return search(
    nums.map(value => ({ value, text: String(value), rank: 2 })),
    target,
  );
}

function search(terms: readonly Term[], target: number): string | undefined {
  if (terms.length === 1) return Math.abs(terms[0].value - target) < TOLERANCE ? terms[0].text : undefined;
  for (let i = 0; i < terms.length; i++) {
    for (let j = i + 1; j < terms.length; j++) {
      const rest = terms.filter((_, k) => k !== i && k !== j);
      for (const joined of join(terms[i], terms[j])) {
        const found = search([joined, ...rest], target);
        if (found) return found;
      }
    }
  }
  return undefined;
}

function join(a: Term, b: Term): Term[] {
  const joined: Term[] = [
    { value: a.value + b.value, text: `${a.text} + ${b.text}`, rank: 0 },
    { value: a.value - b.value, text: `${a.text} - ${bracket(b, 1)}`, rank: 0 },
    { value: b.value - a.value, text: `${b.text} - ${bracket(a, 1)}`, rank: 0 },
    { value: a.value * b.value, text: `${bracket(a, 1)} * ${bracket(b, 1)}`, rank: 1 },
  ];
  if (b.value !== 0)
    joined.push({ value: a.value / b.value, text: `${bracket(a, 1)} / ${bracket(b, 2)}`, rank: 1 });
  if (a.value !== 0)
    joined.push({ value: b.value / a.value, text: `${bracket(b, 1)} / ${bracket(a, 2)}`, rank: 1 });
  return joined;
}

/** The text of a term where something that binds less tightly than `rank` needs brackets. */
function bracket(term: Term, rank: number): string {
  return term.rank < rank ? `(${term.text})` : term.text;
}

/**
 * The signed sum of all the numbers, ± a ± b ± c, that makes the target. RAGEN keeps only such rows of the public
 * data.
 * @returns undefined when there is none
 */
export function solveBySigns(nums: readonly number[], target: number): string | undefined {
  for (let signs = 0; signs < 2 ** nums.length; signs++) {
    const signed = nums.map((value, i) => ((signs >> i) & 1 ? -value : value));
    if (signed.reduce((sum, value) => sum + value, 0) !== target) continue;
    return signed
      .map((value, i) => (value < 0 ? `- ${-value}` : i > 0 ? `+ ${value}` : `${value}`))
      .join(' ');
  }
  return undefined;
}
