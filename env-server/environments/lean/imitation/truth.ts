import { type Formula, keyOf } from './formula.ts';
import { LeanError } from './parser.ts';
import type { Goal } from './statement.ts';

/** Truth tables go up to this many atoms. */
const MAX_ATOMS = 12;

/** The goal holds for all values of its atoms; relations are atoms too. */
export function isTautology({ hypotheses, target }: Goal): boolean {
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
  if (numbers.size > MAX_ATOMS) throw new LeanError(`tauto goes up to ${MAX_ATOMS} propositions`);
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
