/** Formulas of propositional logic; `¬p` is `p → False`. */
export type Formula =
  | { readonly kind: 'true' }
  | { readonly kind: 'false' }
  | { readonly kind: 'atom'; readonly name: string }
  | { readonly kind: 'and' | 'or' | 'implies' | 'iff'; readonly left: Formula; readonly right: Formula };

export const TRUE: Formula = { kind: 'true' };
export const FALSE: Formula = { kind: 'false' };

export function not(formula: Formula): Formula {
  return { kind: 'implies', left: formula, right: FALSE };
}

/** Formula that `formula` negates, if it is a negation. */
export function negated(formula: Formula): Formula | undefined {
  return formula.kind === 'implies' && formula.right.kind === 'false' ? formula.left : undefined;
}

const LEVELS = { iff: 20, implies: 25, or: 30, and: 35 } as const;
const SIGNS = { iff: '↔', implies: '→', or: '∨', and: '∧' } as const;
const NOT_LEVEL = 40;

/** The formula in Lean's notation, which is the same for the same formulas only. */
export function show(formula: Formula, level = 0): string {
  const wrap = (text: string, own: number) => (own < level ? `(${text})` : text);
  switch (formula.kind) {
    case 'true':
      return 'True';
    case 'false':
      return 'False';
    case 'atom':
      return formula.name;
    default: {
      const inner = negated(formula);
      if (inner) return wrap(`¬${show(inner, NOT_LEVEL)}`, NOT_LEVEL);
      const own = LEVELS[formula.kind];
      const rightLevel = formula.kind === 'iff' ? own + 1 : own;
      return wrap(
        `${show(formula.left, own + 1)} ${SIGNS[formula.kind]} ${show(formula.right, rightLevel)}`,
        own,
      );
    }
  }
}

export function same(a: Formula, b: Formula): boolean {
  return show(a) === show(b);
}
