import type { Sliced } from '../../../../shared/slices.ts';
import { inScheduledSlices } from '../../core/slices.ts';
import type { Backend, Theorem, Verdict } from '../backend.ts';
import {
  FALSE,
  type Formula,
  type Goal,
  type Hypothesis,
  LeanError,
  negated,
  not,
  Reader,
  readFormula,
  readStatement,
  same,
  show,
  showGoal,
  tokenize,
} from './parser.ts';
import { type Context, check, infer, readProof, sides } from './terms.ts';

/** Operations of tactics on goals and their hypotheses. */

function holds({ hypotheses }: Goal, formula: Formula): boolean {
  return hypotheses.some(hypothesis => same(hypothesis.formula, formula));
}

function contextOf(goal: Goal): Context {
  return { goal, hypotheses: goal.hypotheses };
}

/** The hypothesis replaces one of the same name. */
function withHypothesis(goal: Goal, name: string, formula: Formula): Goal {
  if (goal.atoms.has(name)) throw new LeanError(`the name ${name} is taken`);
  const others = goal.hypotheses.filter(hypothesis => hypothesis.name !== name);
  return { ...goal, hypotheses: name === '_' ? goal.hypotheses : [...others, { name, formula }] };
}

function without(goal: Goal, name: string): Goal {
  return { ...goal, hypotheses: goal.hypotheses.filter(hypothesis => hypothesis.name !== name) };
}

function find(goal: Goal, name: string): Hypothesis {
  const hypothesis = goal.hypotheses.findLast(candidate => candidate.name === name);
  if (!hypothesis) throw new LeanError(`unknown hypothesis '${name}'`);
  return hypothesis;
}

function fresh(goal: Goal): string {
  const taken = (name: string) => goal.hypotheses.some(hypothesis => hypothesis.name === name);
  let name = 'h';
  for (let count = 1; taken(name) || goal.atoms.has(name); count++) name = `h${count}`;
  return name;
}

function disjunction(formula: Formula): { left: Formula; right: Formula } {
  if (formula.kind !== 'or') throw new LeanError(`${show(formula)} is not a disjunction`);
  return formula;
}

/** Tactics that split a hypothesis: rcases, obtain and cases. */

/** A pattern of rcases: a name, ⟨both parts⟩, or one case | the other. */
type Pattern =
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'both' | 'either'; readonly patterns: readonly Pattern[] };

function readPattern(reader: Reader): Pattern {
  const patterns = [readSinglePattern(reader)];
  while (reader.skip('|')) patterns.push(readSinglePattern(reader));
  return patterns.length === 1 ? patterns[0] : { kind: 'either', patterns };
}

function readSinglePattern(reader: Reader): Pattern {
  if (reader.skip('(')) {
    const pattern = readPattern(reader);
    reader.expect(')');
    return pattern;
  }
  if (!reader.skip('⟨')) return { kind: 'name', name: reader.name() };
  const patterns = [readPattern(reader)];
  while (reader.skip(',')) patterns.push(readPattern(reader));
  reader.expect('⟩');
  return { kind: 'both', patterns };
}

/** The goals in which a proof of `formula` is split. */
function takeApart(goal: Goal, formula: Formula, pattern: Pattern): Goal[] {
  if (pattern.kind === 'name') return [withHypothesis(goal, pattern.name, formula)];
  const [first, ...rest] = pattern.patterns;
  const others: Pattern = rest.length === 1 ? rest[0] : { kind: pattern.kind, patterns: rest };
  if (pattern.kind === 'either') {
    const { left, right } = disjunction(formula);
    return [...takeApart(goal, left, first), ...takeApart(goal, right, others)];
  }
  if (rest.length === 0) return takeApart(goal, formula, first);
  if (formula.kind !== 'and' && formula.kind !== 'iff')
    throw new LeanError(`${show(formula)} has no two parts`);
  const [left, right] = sides(formula);
  return takeApart(goal, left, first).flatMap(now => takeApart(now, right, others));
}

function rcases(goal: Goal, reader: Reader): Goal[] {
  const proof = readProof(reader);
  const formula = infer(proof, contextOf(goal));
  const rest = proof.kind === 'name' ? without(goal, proof.name) : goal;
  if (!reader.skip('with')) return cased(rest, formula, [], proof.kind === 'name' ? proof.name : fresh(goal));
  return takeApart(rest, formula, readPattern(reader));
}

function obtain(goal: Goal, reader: Reader): Goal[] {
  const pattern = readPattern(reader);
  reader.expect(':=');
  const proof = readProof(reader);
  const formula = infer(proof, contextOf(goal));
  return takeApart(proof.kind === 'name' ? without(goal, proof.name) : goal, formula, pattern);
}

function cases(goal: Goal, reader: Reader): Goal[] {
  const { name, formula } = find(goal, reader.name());
  const names: string[] = [];
  if (reader.skip('with')) while (!reader.isDone) names.push(reader.name());
  return cased(without(goal, name), formula, names, name);
}

function cased(goal: Goal, formula: Formula, names: readonly string[], own: string): Goal[] {
  switch (formula.kind) {
    case 'or': {
      const [left = own, right = left] = names;
      return [withHypothesis(goal, left, formula.left), withHypothesis(goal, right, formula.right)];
    }
    case 'and':
    case 'iff': {
      const [first, second] = sides(formula);
      const [
        left = formula.kind === 'and' ? 'left' : 'mp',
        right = formula.kind === 'and' ? 'right' : 'mpr',
      ] = names;
      return [withHypothesis(withHypothesis(goal, left, first), right, second)];
    }
    case 'false':
      return [];
    case 'true':
      return [goal];
    default:
      throw new LeanError(`${show(formula)} has no cases`);
  }
}

const MAX_GOALS = 200;

type Tactic = (goal: Goal, reader: Reader) => Goal[];

/**
 * The goals that remain after a tactic on the first one.
 * @throws LeanError when the tactic does not apply
 */
export function applyTactic(goals: readonly Goal[], text: string): Goal[] {
  const [goal, ...others] = goals;
  if (!goal) throw new LeanError('no goals left');
  const reader = new Reader(tokenize(text.replace(/^\s*[·.]\s+/, '')));
  const name = reader.take();
  if (!Object.hasOwn(TACTICS, name)) throw new LeanError(`unknown tactic '${name}'`);
  const made = TACTICS[name](goal, reader);
  reader.end();
  if (made.length + others.length > MAX_GOALS) throw new LeanError('too many goals');
  return [...made, ...others];
}

const TACTICS: { readonly [name: string]: Tactic } = {
  intro,
  intros: intro,
  exact,
  refine,
  apply,
  assumption: goal => closeIf(holds(goal, goal.target), 'no hypothesis is the goal'),
  constructor: split,
  left: goal => [{ ...goal, target: disjunction(goal.target).left }],
  right: goal => [{ ...goal, target: disjunction(goal.target).right }],
  exfalso: goal => [{ ...goal, target: FALSE }],
  contradiction: goal => closeIf(isContradictory(goal), 'the hypotheses do not contradict each other'),
  trivial: goal => closeIf(isTrivial(goal), 'the goal is not trivial'),
  rcases,
  obtain,
  cases,
  "cases'": cases,
  have,
  by_contra: byContra,
  by_cases: byCases,
  rfl: goal => closeIf(isReflexive(goal.target), 'the sides are not equal'),
  clear,
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
    const formula = readFormula(reader, goal.atoms);
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
  const formula = readFormula(reader, goal.atoms);
  return [withHypothesis(goal, name, formula), withHypothesis(goal, name, not(formula))];
}

function clear(goal: Goal, reader: Reader): Goal[] {
  let now = goal;
  do now = without(now, find(now, reader.name()).name);
  while (!reader.isDone);
  return [now];
}

function isReflexive(target: Formula): boolean {
  return target.kind === 'iff' && same(target.left, target.right);
}

function isContradictory(goal: Goal): boolean {
  return goal.hypotheses.some(({ formula }) => {
    const inner = negated(formula);
    return formula.kind === 'false' || (inner !== undefined && holds(goal, inner));
  });
}

function isTrivial(goal: Goal): boolean {
  const { target } = goal;
  if (target.kind === 'and')
    return [target.left, target.right].every(side => isTrivial({ ...goal, target: side }));
  return target.kind === 'true' || holds(goal, target) || isReflexive(target) || isContradictory(goal);
}

/** Goals shown to the player. */
const SHOWN_GOALS = 5;

/**
 * A checker of proofs in propositional logic, in Lean 4 syntax, for machines without Lean. It accepts less than Lean
 * and nothing that is false.
 */
export const builtinBackend: Backend = {
  check: (theorem, tactics) => inScheduledSlices(checkProof(theorem, tactics)),
};

function* checkProof({ statement }: Theorem, tactics: readonly string[]): Sliced<Verdict> {
  let goals: Goal[] = [readStatement(statement)];
  for (const tactic of tactics) {
    yield;
    try {
      goals = applyTactic(goals, tactic);
    } catch (error) {
      if (error instanceof LeanError) return { status: 'rejected', messages: [error.message] };
      throw error;
    }
  }
  if (goals.length === 0) return { status: 'proved', messages: ['no goals'] };
  const shown = goals.slice(0, SHOWN_GOALS).map(showGoal);
  const more = goals.length > SHOWN_GOALS ? [`and ${goals.length - SHOWN_GOALS} more`] : [];
  return { status: 'accepted', messages: [`unsolved goals: ${goals.length}`, ...shown, ...more] };
}
