import { type Formula, negated, type Sort, showTerm, type Term } from './formula.ts';

/** Decisions about arithmetic: values of closed terms, equality of polynomials, linear inequalities. */

const MAX_BITS = 4096;
const MAX_EXPONENT = 64n;
const MAX_CONSTRAINTS = 1500;

/** The computation would be too large; nothing is concluded. */
class TooLarge extends Error {}

function checked(value: bigint): bigint {
  if (value.toString(16).length * 4 > MAX_BITS) throw new TooLarge();
  return value;
}

/** `compute`, or undefined when it grows too large. */
function bounded<T>(compute: () => T): T | undefined {
  try {
    return compute();
  } catch (error) {
    if (error instanceof TooLarge) return undefined;
    throw error;
  }
}

/** The value of a term without variables, by Lean's rules; undefined for one with variables. */
function evaluate(term: Term, sort: Sort): bigint | undefined {
  switch (term.kind) {
    case 'number':
      return term.value;
    case 'variable':
      return undefined;
    case 'negation': {
      const value = evaluate(term.of, sort);
      return value === undefined ? undefined : -value;
    }
    case 'operation': {
      const left = evaluate(term.left, sort);
      const right = evaluate(term.right, sort);
      return left === undefined || right === undefined
        ? undefined
        : compute(term.operator, left, right, sort);
    }
  }
}

function compute(operator: string, left: bigint, right: bigint, sort: Sort): bigint {
  switch (operator) {
    case '+':
      return checked(left + right);
    case '-':
      return sort === 'ℕ' && left < right ? 0n : left - right;
    case '*':
      return checked(left * right);
    case '/':
      return right === 0n ? 0n : (left - euclideanRest(left, right)) / right;
    case '%':
      return right === 0n ? left : euclideanRest(left, right);
    default:
      if (right > MAX_EXPONENT) throw new TooLarge();
      return checked(left ** right);
  }
}

/** The rest in [0, |divisor|), as Lean divides integers. */
function euclideanRest(value: bigint, divisor: bigint): bigint {
  const size = divisor < 0n ? -divisor : divisor;
  return ((value % size) + size) % size;
}

/** Whether a relation between numbers holds; undefined when it has variables or is too large. */
export function decide(formula: Formula): boolean | undefined {
  if (formula.kind !== 'relation') return undefined;
  return bounded(() => {
    const left = evaluate(formula.left, formula.sort);
    const right = evaluate(formula.right, formula.sort);
    if (left === undefined || right === undefined) return undefined;
    return { '=': left === right, '<': left < right, '≤': left <= right }[formula.relation];
  });
}

/** Monomial (sorted factors joined by `·`, `` for the constant) → coefficient, none zero. */
type Polynomial = ReadonlyMap<string, bigint>;

const CONSTANT = '';

function add(a: Polynomial, b: Polynomial, times: bigint): Polynomial {
  const sum = new Map(a);
  for (const [monomial, coefficient] of b) {
    const value = checked((sum.get(monomial) ?? 0n) + times * coefficient);
    if (value === 0n) sum.delete(monomial);
    else sum.set(monomial, value);
  }
  return sum;
}

function multiply(a: Polynomial, b: Polynomial): Polynomial {
  let product: Polynomial = new Map();
  for (const [m, c] of a) {
    const row = new Map<string, bigint>();
    for (const [n, d] of b) {
      const factors = [...m.split('·'), ...n.split('·')].filter(Boolean).sort();
      row.set(factors.join('·'), c * d);
    }
    product = add(product, row, 1n);
    if (product.size > MAX_CONSTRAINTS) throw new TooLarge();
  }
  return product;
}

/** The term as a polynomial; what is no polynomial (truncated subtraction, division) becomes a separate factor. */
function polynomial(term: Term, sort: Sort): Polynomial {
  const value = evaluate(term, sort);
  if (value !== undefined) return value === 0n ? new Map() : new Map([[CONSTANT, value]]);
  const opaque = (): Polynomial => new Map([[`[${showTerm(term)}]`, 1n]]);
  switch (term.kind) {
    case 'variable':
      return new Map([[term.name, 1n]]);
    case 'negation':
      return add(new Map(), polynomial(term.of, sort), -1n);
    case 'operation':
      switch (term.operator) {
        case '+':
          return add(polynomial(term.left, sort), polynomial(term.right, sort), 1n);
        case '-':
          return sort === 'ℕ'
            ? opaque()
            : add(polynomial(term.left, sort), polynomial(term.right, sort), -1n);
        case '*':
          return multiply(polynomial(term.left, sort), polynomial(term.right, sort));
        case '^': {
          const exponent = evaluate(term.right, 'ℕ');
          if (exponent === undefined) return opaque();
          if (exponent > MAX_EXPONENT) throw new TooLarge();
          const base = polynomial(term.left, sort);
          let power: Polynomial = new Map([[CONSTANT, 1n]]);
          for (let count = 0n; count < exponent; count++) power = multiply(power, base);
          return power;
        }
        default:
          return opaque();
      }
    default:
      return opaque();
  }
}

/** Both sides of an equation are the same polynomial. */
export function isIdentity(formula: Formula): boolean {
  if (formula.kind !== 'relation' || formula.relation !== '=') return false;
  const { left, right, sort } = formula;
  return bounded(() => add(polynomial(left, sort), polynomial(right, sort), -1n).size === 0) ?? false;
}

/** Σ coefficient · monomial + constant ≤ 0 over the integers. */
type Constraint = Polynomial;

/**
 * The target follows from the hypotheses by linear arithmetic: their conjunction with the target's negation has no
 * solution, shown by Fourier–Motzkin elimination with integer rounding. Products of variables count as unknowns.
 * True is a proof; false says nothing.
 */
export function followsLinearly(hypotheses: readonly Formula[], target: Formula): boolean {
  const result = bounded(() => {
    const sorts: Sort[] = [target, ...hypotheses].flatMap(formula => relationSort(formula));
    return [...new Set(sorts)].some(sort => {
      const known = hypotheses.flatMap(formula => constraintsOf(formula, sort));
      return contradictionsOf(target, sort).every(cases =>
        isInfeasible(withSigns([...known, ...cases], sort)),
      );
    });
  });
  return result ?? false;
}

function relationSort(formula: Formula): Sort[] {
  const inner = negated(formula) ?? formula;
  return inner.kind === 'relation' ? [inner.sort] : [];
}

/** left − right + shift ≤ 0. */
function below(left: Term, right: Term, sort: Sort, shift: bigint): Constraint {
  const difference = add(polynomial(left, sort), polynomial(right, sort), -1n);
  return shift === 0n ? difference : add(difference, new Map([[CONSTANT, shift]]), 1n);
}

/** What a hypothesis says; a negated equation and everything that is no relation of the sort say nothing. */
function constraintsOf(formula: Formula, sort: Sort): Constraint[] {
  const inner = negated(formula);
  const { kind } = inner ?? formula;
  if (kind !== 'relation') return [];
  const relation = (inner ?? formula) as Extract<Formula, { kind: 'relation' }>;
  if (relation.sort !== sort) return [];
  const { left, right } = relation;
  if (inner) {
    if (relation.relation === '=') return [];
    return [below(right, left, sort, relation.relation === '≤' ? 1n : 0n)];
  }
  switch (relation.relation) {
    case '=':
      return [below(left, right, sort, 0n), below(right, left, sort, 0n)];
    case '<':
      return [below(left, right, sort, 1n)];
    case '≤':
      return [below(left, right, sort, 0n)];
  }
}

/** Cases that together are the target's negation; each must be impossible. */
function contradictionsOf(target: Formula, sort: Sort): Constraint[][] {
  if (target.kind === 'relation' && target.sort === sort) {
    const { left, right } = target;
    switch (target.relation) {
      case '=':
        return [[below(left, right, sort, 1n)], [below(right, left, sort, 1n)]];
      case '<':
        return [[below(right, left, sort, 0n)]];
      case '≤':
        return [[below(right, left, sort, 1n)]];
    }
  }
  const inner = negated(target);
  return [inner ? constraintsOf(inner, sort) : []];
}

/** Natural numbers and what is made of them are not negative. */
function withSigns(constraints: readonly Constraint[], sort: Sort): Constraint[] {
  if (sort === 'ℤ') return [...constraints];
  const monomials = new Set(constraints.flatMap(constraint => [...constraint.keys()]));
  monomials.delete(CONSTANT);
  return [...constraints, ...Array.from(monomials, monomial => new Map([[monomial, -1n]]))];
}

function isInfeasible(start: readonly Constraint[]): boolean {
  let constraints = unique(start.map(tighten));
  for (;;) {
    if (constraints.some(constraint => constraint.size === 1 && (constraint.get(CONSTANT) ?? 0n) > 0n))
      return true;
    const monomial = cheapest(constraints);
    if (monomial === undefined) return false;
    const rest = constraints.filter(constraint => !constraint.has(monomial));
    const upper = constraints.filter(constraint => (constraint.get(monomial) ?? 0n) > 0n);
    const lower = constraints.filter(constraint => (constraint.get(monomial) ?? 0n) < 0n);
    if (rest.length + upper.length * lower.length > MAX_CONSTRAINTS) return false;
    for (const a of upper) {
      for (const b of lower) {
        const scaled = add(new Map(), a, -(b.get(monomial) as bigint));
        rest.push(tighten(add(scaled, b, a.get(monomial) as bigint)));
      }
    }
    constraints = unique(rest);
  }
}

/** The monomial whose elimination makes fewest constraints. */
function cheapest(constraints: readonly Constraint[]): string | undefined {
  const counts = new Map<string, [number, number]>();
  for (const constraint of constraints) {
    for (const [monomial, coefficient] of constraint) {
      if (monomial === CONSTANT) continue;
      const count = counts.get(monomial) ?? [0, 0];
      count[coefficient > 0n ? 0 : 1]++;
      counts.set(monomial, count);
    }
  }
  let best: string | undefined;
  let least = Infinity;
  for (const [monomial, [up, down]] of counts) {
    if (up * down - up - down < least) {
      least = up * down - up - down;
      best = monomial;
    }
  }
  return best;
}

/** Divides by the coefficients' greatest common divisor and rounds the constant up: all unknowns are integers. */
function tighten(constraint: Constraint): Constraint {
  let divisor = 0n;
  for (const [monomial, coefficient] of constraint)
    if (monomial !== CONSTANT) divisor = gcd(divisor, coefficient);
  if (divisor <= 1n) return constraint;
  const tight = new Map<string, bigint>();
  for (const [monomial, coefficient] of constraint) {
    const value = monomial === CONSTANT ? ceilDivide(coefficient, divisor) : coefficient / divisor;
    if (value !== 0n) tight.set(monomial, value);
  }
  return tight;
}

function ceilDivide(value: bigint, divisor: bigint): bigint {
  return (value - euclideanRest(value, divisor)) / divisor + (euclideanRest(value, divisor) === 0n ? 0n : 1n);
}

function gcd(a: bigint, b: bigint): bigint {
  let [x, y] = [a < 0n ? -a : a, b < 0n ? -b : b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}

function unique(constraints: readonly Constraint[]): Constraint[] {
  const seen = new Map<string, Constraint>();
  for (const constraint of constraints) {
    const key = [...constraint]
      .map(([m, c]) => `${m} ${c}`)
      .sort()
      .join();
    seen.set(key, constraint);
  }
  return [...seen.values()];
}
