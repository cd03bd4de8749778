/** Formulas of propositional logic over relations between integer or natural-number terms. */

export type Sort = 'ℕ' | 'ℤ';

export type Term =
  | { readonly kind: 'number'; readonly value: bigint }
  | { readonly kind: 'variable'; readonly name: string }
  | { readonly kind: 'negation'; readonly of: Term }
  | { readonly kind: 'operation'; readonly operator: Operator; readonly left: Term; readonly right: Term };

export type Operator = '+' | '-' | '*' | '/' | '%' | '^';
export type Relation = '=' | '<' | '≤';

/** `¬p` is `p → False`; `>` and `≥` are turned round; `≠` is a negated `=`. */
export type Formula =
  | { readonly kind: 'true' }
  | { readonly kind: 'false' }
  | { readonly kind: 'atom'; readonly name: string }
  | { readonly kind: 'and' | 'or' | 'implies' | 'iff'; readonly left: Formula; readonly right: Formula }
  | {
      readonly kind: 'relation';
      readonly relation: Relation;
      readonly sort: Sort;
      readonly left: Term;
      readonly right: Term;
    };

export const TRUE: Formula = { kind: 'true' };
export const FALSE: Formula = { kind: 'false' };

export function not(formula: Formula): Formula {
  return { kind: 'implies', left: formula, right: FALSE };
}

/** What `formula` negates, if it is a negation. */
export function negated(formula: Formula): Formula | undefined {
  return formula.kind === 'implies' && formula.right.kind === 'false' ? formula.left : undefined;
}

const LEVELS = { iff: 20, implies: 25, or: 30, and: 35, relation: 50 } as const;
const SIGNS = { iff: '↔', implies: '→', or: '∨', and: '∧' } as const;
const NOT_LEVEL = 40;

/** The formula in Lean's notation. */
export function show(formula: Formula): string {
  return write(formula, 0, false);
}

function write(formula: Formula, level: number, sorts: boolean): string {
  const wrap = (text: string, own: number) => (own < level ? `(${text})` : text);
  switch (formula.kind) {
    case 'true':
      return 'True';
    case 'false':
      return 'False';
    case 'atom':
      return formula.name;
    case 'relation':
      return wrap(
        `${showTerm(formula.left)} ${formula.relation}${sorts ? formula.sort : ''} ${showTerm(formula.right)}`,
        LEVELS.relation,
      );
    default: {
      const inner = negated(formula);
      if (inner) return wrap(`¬${write(inner, NOT_LEVEL, sorts)}`, NOT_LEVEL);
      const own = LEVELS[formula.kind];
      const rightLevel = formula.kind === 'iff' ? own + 1 : own;
      return wrap(
        `${write(formula.left, own + 1, sorts)} ${SIGNS[formula.kind]} ${write(formula.right, rightLevel, sorts)}`,
        own,
      );
    }
  }
}

const TERM_LEVELS: { readonly [operator in Operator]: number } = {
  '+': 65,
  '-': 65,
  '*': 70,
  '/': 70,
  '%': 70,
  '^': 75,
};
const MINUS_LEVEL = 72;

export function showTerm(term: Term, level = 0): string {
  const wrap = (text: string, own: number) => (own < level ? `(${text})` : text);
  switch (term.kind) {
    case 'number':
      return String(term.value);
    case 'variable':
      return term.name;
    case 'negation':
      return wrap(`-${showTerm(term.of, MINUS_LEVEL + 1)}`, MINUS_LEVEL);
    case 'operation': {
      const own = TERM_LEVELS[term.operator];
      const [left, right] = term.operator === '^' ? [own + 1, own] : [own, own + 1];
      return wrap(`${showTerm(term.left, left)} ${term.operator} ${showTerm(term.right, right)}`, own);
    }
  }
}

export function same(a: Formula, b: Formula): boolean {
  return keyOf(a) === keyOf(b);
}

/** A text that is the same for the same formulas only: the notation with the sort of every relation. */
export function keyOf(formula: Formula): string {
  return write(formula, 0, true);
}
