import { decide, followsLinearly, isIdentity } from './arithmetic.ts';
import { FALSE, type Formula, keyOf, negated, not, same, show, type Term } from './formula.ts';
import { LeanError, Reader, readFormula, tokenize } from './parser.ts';
import type { Goal, Hypothesis } from './statement.ts';
import { type Context, check, infer, readProof, sides } from './terms.ts';

/** Which deciding tactics may be used. */
export const AUTOMATION = ['none', 'arithmetic', 'all'] as const;
export type Automation = (typeof AUTOMATION)[number];

/** Truth tables go up to this many atoms. */
const MOST_ATOMS = 12;
const MOST_GOALS = 200;

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
  if (made.length + others.length > MOST_GOALS) throw new LeanError('too many goals');
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
  rw: { run: rewrite },
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

function holds({ hypotheses }: Goal, formula: Formula): boolean {
  return hypotheses.some(hypothesis => same(hypothesis.formula, formula));
}

function contextOf(goal: Goal): Context {
  return { goal, hypotheses: goal.hypotheses };
}

/** The hypothesis takes the place of one of the same name. */
function withHypothesis(goal: Goal, name: string, formula: Formula): Goal {
  if (goal.atoms.has(name) || goal.variables.has(name)) throw new LeanError(`the name ${name} is taken`);
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

function fresh(goal: Goal): string {
  const taken = (name: string) => goal.hypotheses.some(hypothesis => hypothesis.name === name);
  let name = 'h';
  for (let count = 1; taken(name) || goal.atoms.has(name) || goal.variables.has(name); count++)
    name = `h${count}`;
  return name;
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

function disjunction(formula: Formula): { left: Formula; right: Formula } {
  if (formula.kind !== 'or') throw new LeanError(`${show(formula)} is no disjunction`);
  return formula;
}

/** A way to take a hypothesis apart: a name, ⟨both parts⟩, or one case | the other. */
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

/** The goals in which what proves `formula` is taken apart. */
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

/** Replaces one side of an equation by the other in the goal, and closes the goal if its sides become equal. */
function rewrite(goal: Goal, reader: Reader): Goal[] {
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
  return isReflexive(target) ? [] : [{ ...goal, target }];
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
  // An exponent is a numeral of its own sort, which no equation is about.
  const right = term.operator === '^' ? term.right : replace(term.right, from, to);
  return { ...term, left: replace(term.left, from, to), right };
}

function sameTerm(a: Term, b: Term): boolean {
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

/** The goal holds whatever its atoms are, relations being atoms too. */
function isTautology({ hypotheses, target }: Goal): boolean {
  const all = [...hypotheses.map(hypothesis => hypothesis.formula), target];
  const numbers = new Map<string, number>();
  const numberOf = new Map<Formula, number>();
  const collect = (formula: Formula): void => {
    if (formula.kind === 'atom' || formula.kind === 'relation') {
      const key = keyOf(formula);
      const number = numbers.get(key) ?? numbers.size;
      numbers.set(key, number);
      numberOf.set(formula, number);
    } else if ('left' in formula) {
      collect(formula.left);
      collect(formula.right);
    }
  };
  all.forEach(collect);
  if (numbers.size > MOST_ATOMS) throw new LeanError(`tauto goes up to ${MOST_ATOMS} propositions`);
  for (let row = 0; row < 2 ** numbers.size; row++) {
    const isTrue = (atom: Formula) => ((row >> (numberOf.get(atom) as number)) & 1) === 1;
    const known = hypotheses.every(({ formula }) => evaluateTruth(formula, isTrue));
    if (known && !evaluateTruth(target, isTrue)) return false;
  }
  return true;
}

/** The truth of a formula, `isTrue` telling that of its atoms and relations. */
export function evaluateTruth(formula: Formula, isTrue: (atom: Formula) => boolean): boolean {
  switch (formula.kind) {
    case 'true':
      return true;
    case 'false':
      return false;
    case 'and':
      return evaluateTruth(formula.left, isTrue) && evaluateTruth(formula.right, isTrue);
    case 'or':
      return evaluateTruth(formula.left, isTrue) || evaluateTruth(formula.right, isTrue);
    case 'implies':
      return !evaluateTruth(formula.left, isTrue) || evaluateTruth(formula.right, isTrue);
    case 'iff':
      return evaluateTruth(formula.left, isTrue) === evaluateTruth(formula.right, isTrue);
    default:
      return isTrue(formula);
  }
}
