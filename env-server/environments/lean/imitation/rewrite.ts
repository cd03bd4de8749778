import { type Formula, same, show, type Term } from './formula.ts';
import { find } from './goals.ts';
import { LeanError, type Reader } from './parser.ts';
import type { Goal } from './statement.ts';

/** The goal with one side of an equation replaced by the other. */
export function rewrite(goal: Goal, reader: Reader): Goal {
  reader.expect('[');
  let { target } = goal;
  do {
    const back = reader.skip('←');
    const { formula } = find(goal, reader.name());
    if (formula.kind !== 'relation' || formula.relation !== '=')
      throw new LeanError(`${show(formula)} is no equation`);
    const [from, to] = back ? [formula.right, formula.left] : [formula.left, formula.right];
    const next = replaceIn(target, from, to, formula.sort);
    if (same(next, target)) throw new LeanError(`the goal does not contain what ${show(formula)} replaces`);
    target = next;
  } while (reader.skip(','));
  reader.expect(']');
  return { ...goal, target };
}

function replaceIn(formula: Formula, from: Term, to: Term, sort: string): Formula {
  if (formula.kind === 'relation') {
    if (formula.sort !== sort) return formula;
    return { ...formula, left: replace(formula.left, from, to), right: replace(formula.right, from, to) };
  }
  if (!('left' in formula)) return formula;
  return {
    ...formula,
    left: replaceIn(formula.left, from, to, sort),
    right: replaceIn(formula.right, from, to, sort),
  };
}

function replace(term: Term, from: Term, to: Term): Term {
  if (sameTerm(term, from)) return to;
  if (term.kind === 'negation') return { ...term, of: replace(term.of, from, to) };
  if (term.kind !== 'operation') return term;
  // An exponent is a numeral of another sort, which no equation is about.
  const right = term.operator === '^' ? term.right : replace(term.right, from, to);
  return { ...term, left: replace(term.left, from, to), right };
}

export function sameTerm(a: Term, b: Term): boolean {
  if (a.kind === 'number' && b.kind === 'number') return a.value === b.value;
  if (a.kind === 'variable' && b.kind === 'variable') return a.name === b.name;
  if (a.kind === 'negation' && b.kind === 'negation') return sameTerm(a.of, b.of);
  return (
    a.kind === 'operation' &&
    b.kind === 'operation' &&
    a.operator === b.operator &&
    sameTerm(a.left, b.left) &&
    sameTerm(a.right, b.right)
  );
}
