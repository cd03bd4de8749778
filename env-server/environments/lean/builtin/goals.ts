import { type Formula, same, show } from './formula.ts';
import { LeanError } from './parser.ts';
import type { Goal, Hypothesis } from './statement.ts';
import type { Context } from './terms.ts';

/** Operations of tactics on goals and their hypotheses. */

export function holds({ hypotheses }: Goal, formula: Formula): boolean {
  return hypotheses.some(hypothesis => same(hypothesis.formula, formula));
}

export function contextOf(goal: Goal): Context {
  return { goal, hypotheses: goal.hypotheses };
}

/** The hypothesis takes the place of one of the same name. */
export function withHypothesis(goal: Goal, name: string, formula: Formula): Goal {
  if (goal.atoms.has(name)) throw new LeanError(`the name ${name} is taken`);
  const others = goal.hypotheses.filter(hypothesis => hypothesis.name !== name);
  return { ...goal, hypotheses: name === '_' ? goal.hypotheses : [...others, { name, formula }] };
}

export function without(goal: Goal, name: string): Goal {
  return { ...goal, hypotheses: goal.hypotheses.filter(hypothesis => hypothesis.name !== name) };
}

export function find(goal: Goal, name: string): Hypothesis {
  const hypothesis = goal.hypotheses.findLast(candidate => candidate.name === name);
  if (!hypothesis) throw new LeanError(`unknown hypothesis '${name}'`);
  return hypothesis;
}

export function fresh(goal: Goal): string {
  const taken = (name: string) => goal.hypotheses.some(hypothesis => hypothesis.name === name);
  let name = 'h';
  for (let count = 1; taken(name) || goal.atoms.has(name); count++) name = `h${count}`;
  return name;
}

export function disjunction(formula: Formula): { left: Formula; right: Formula } {
  if (formula.kind !== 'or') throw new LeanError(`${show(formula)} is no disjunction`);
  return formula;
}
