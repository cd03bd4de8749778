import { decide, followsLinearly, isIdentity } from './arithmetic.ts';
import { FALSE, type Formula, negated, not, same, show } from './formula.ts';
import { contextOf, disjunction, find, fresh, holds, withHypothesis, without } from './goals.ts';
import { LeanError, Reader, readFormula, tokenize } from './parser.ts';
import { cases, obtain, rcases } from './patterns.ts';
import { rewrite, sameTerm } from './rewrite.ts';
import type { Goal } from './statement.ts';
import { check, infer, readProof, sides } from './terms.ts';
import { isTautology } from './truth.ts';

/** Which deciding tactics may be used. */
export const AUTOMATION = ['none', 'arithmetic', 'all'] as const;
export type Automation = (typeof AUTOMATION)[number];

const MAX_GOALS = 200;

type Tactic = (goal: Goal, reader: Reader) => Goal[];

/**
 * The goals that remain after a tactic on the first one.
 * @throws LeanError when the tactic does not apply
 */
export function applyTactic(goals: readonly Goal[], text: string, automation: Automation): Goal[] {
  const [goal, ...others] = goals;
  if (!goal) throw new LeanError('no goals left');
  const reader = new Reader(tokenize(text.replace(/^\s*[·.]\s+/, '')));
  const name = reader.take();
  if (!Object.hasOwn(TACTICS, name)) throw new LeanError(`unknown tactic '${name}'`);
  const { run, needs = 'none' } = TACTICS[name];
  if (AUTOMATION.indexOf(needs) > AUTOMATION.indexOf(automation)) {
    throw new LeanError(`the tactic '${name}' is switched off`);
  }
  const made = run(goal, reader);
  reader.end();
  if (made.length + others.length > MAX_GOALS) throw new LeanError('too many goals');
  return [...made, ...others];
}

const TACTICS: { readonly [name: string]: { readonly run: Tactic; readonly needs?: Automation } } = {
  intro: { run: intro },
  intros: { run: intro },
  exact: { run: exact },
  refine: { run: refine },
  apply: { run: apply },
  assumption: { run: goal => closeIf(holds(goal, goal.target), 'no hypothesis is the goal') },
  constructor: { run: split },
  left: { run: goal => [{ ...goal, target: disjunction(goal.target).left }] },
  right: { run: goal => [{ ...goal, target: disjunction(goal.target).right }] },
  exfalso: { run: goal => [{ ...goal, target: FALSE }] },
  contradiction: {
    run: goal => closeIf(isContradictory(goal), 'the hypotheses do not contradict each other'),
  },
  trivial: { run: goal => closeIf(isTrivial(goal), 'the goal is not trivial') },
  rcases: { run: rcases },
  obtain: { run: obtain },
  cases: { run: cases },
  "cases'": { run: cases },
  have: { run: have },
  by_contra: { run: byContra },
  by_cases: { run: byCases },
  rw: { run: rewritten },
  rfl: { run: goal => closeIf(isReflexive(goal.target), 'the sides are not equal') },
  clear: { run: clear },
  norm_num: {
    run: goal => closeIf(isComputed(goal.target), 'the goal is not settled by computing'),
    needs: 'arithmetic',
  },
  decide: {
    run: goal => closeIf(isComputed(goal.target), 'the goal is not settled by computing'),
    needs: 'arithmetic',
  },
  ring: {
    run: goal => closeIf(isIdentity(goal.target), 'the sides are different polynomials'),
    needs: 'arithmetic',
  },
  omega: { run: linear, needs: 'arithmetic' },
  linarith: { run: linear, needs: 'arithmetic' },
  tauto: {
    run: goal => closeIf(isTautology(goal), 'the goal does not follow by truth tables'),
    needs: 'all',
  },
};

function closeIf(closed: boolean, complaint: string): Goal[] {
  if (!closed) throw new LeanError(complaint);
  return [];
}

function intro(goal: Goal, reader: Reader): Goal[] {
  let now = goal;
  do {
    const { target } = now;
    if (target.kind !== 'implies') throw new LeanError(`nothing to introduce in ${show(target)}`);
    now = {
      ...withHypothesis(now, reader.isDone ? fresh(now) : reader.name(), target.left),
      target: target.right,
    };
  } while (!reader.isDone);
  return [now];
}

function exact(goal: Goal, reader: Reader): Goal[] {
  check(readProof(reader), goal.target, contextOf(goal));
  return [];
}

function refine(goal: Goal, reader: Reader): Goal[] {
  const goals: Goal[] = [];
  check(readProof(reader), goal.target, { ...contextOf(goal), hole: hole => goals.push(hole) });
  return goals;
}

/** Premises of the term's implication become goals, as many as lead to the target. */
function apply(goal: Goal, reader: Reader): Goal[] {
  const term = readProof(reader);
  if (term.kind === 'name' && (term.name === 'Or.inl' || term.name === 'Or.inr')) {
    const { left, right } = disjunction(goal.target);
    return [{ ...goal, target: term.name === 'Or.inl' ? left : right }];
  }
  if (term.kind === 'name' && (term.name === 'And.intro' || term.name === 'Iff.intro')) return split(goal);
  if (term.kind === 'name' && term.name === 'False.elim') return [{ ...goal, target: FALSE }];
  const premises: Goal[] = [];
  let formula = infer(term, contextOf(goal));
  while (!same(formula, goal.target)) {
    if (formula.kind !== 'implies')
      throw new LeanError(`${show(formula)} does not lead to ${show(goal.target)}`);
    premises.push({ ...goal, target: formula.left });
    formula = formula.right;
  }
  return premises;
}

function split(goal: Goal): Goal[] {
  const { target } = goal;
  if (target.kind === 'true') return [];
  if (target.kind !== 'and' && target.kind !== 'iff')
    throw new LeanError(`${show(target)} does not come apart`);
  return sides(target).map(side => ({ ...goal, target: side }));
}

function have(goal: Goal, reader: Reader): Goal[] {
  const name = reader.next === ':' || reader.next === ':=' ? 'this' : reader.name();
  if (reader.skip(':')) {
    const formula = readFormula(reader, goal);
    const next = withHypothesis(goal, name, formula);
    if (!reader.skip(':=')) return [{ ...goal, target: formula }, next];
    check(readProof(reader), formula, contextOf(goal));
    return [next];
  }
  reader.expect(':=');
  return [withHypothesis(goal, name, infer(readProof(reader), contextOf(goal)))];
}

function byContra(goal: Goal, reader: Reader): Goal[] {
  const name = reader.isDone ? fresh(goal) : reader.name();
  return [{ ...withHypothesis(goal, name, negated(goal.target) ?? not(goal.target)), target: FALSE }];
}

function byCases(goal: Goal, reader: Reader): Goal[] {
  const name = reader.name();
  reader.expect(':');
  const formula = readFormula(reader, goal);
  return [withHypothesis(goal, name, formula), withHypothesis(goal, name, not(formula))];
}

function clear(goal: Goal, reader: Reader): Goal[] {
  let now = goal;
  do now = without(now, find(now, reader.name()).name);
  while (!reader.isDone);
  return [now];
}

/** The goal after rewriting, closed if its sides have become equal. */
function rewritten(goal: Goal, reader: Reader): Goal[] {
  const now = rewrite(goal, reader);
  return isReflexive(now.target) ? [] : [now];
}

function linear(goal: Goal): Goal[] {
  const known = goal.hypotheses.map(hypothesis => hypothesis.formula);
  return closeIf(followsLinearly(known, goal.target), 'the goal does not follow by linear arithmetic');
}

function isReflexive(target: Formula): boolean {
  if (target.kind === 'iff') return same(target.left, target.right);
  if (target.kind !== 'relation' || target.relation === '<') return false;
  return sameTerm(target.left, target.right) || (target.relation === '=' && decide(target) === true);
}

/** True, a true relation between numbers, the negation of a false one, or made of such. */
function isComputed(target: Formula): boolean {
  const inner = negated(target);
  if (inner) return decide(inner) === false || inner.kind === 'false';
  if (target.kind === 'and') return isComputed(target.left) && isComputed(target.right);
  if (target.kind === 'or') return isComputed(target.left) || isComputed(target.right);
  return target.kind === 'true' || decide(target) === true;
}

function isContradictory(goal: Goal): boolean {
  return goal.hypotheses.some(({ formula }) => {
    const inner = negated(formula);
    return (
      formula.kind === 'false' || decide(formula) === false || (inner !== undefined && holds(goal, inner))
    );
  });
}

function isTrivial(goal: Goal): boolean {
  const { target } = goal;
  if (target.kind === 'and')
    return [target.left, target.right].every(side => isTrivial({ ...goal, target: side }));
  return target.kind === 'true' || holds(goal, target) || isReflexive(target) || isContradictory(goal);
}
