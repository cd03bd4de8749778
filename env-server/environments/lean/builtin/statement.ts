import { withoutProof } from '../backend.ts';
import { type Formula, show } from './formula.ts';
import { isName, LeanError, Reader, readFormula, tokenize } from './parser.ts';

export interface Hypothesis {
  readonly name: string;
  readonly formula: Formula;
}

/** Formula to prove, and its hypotheses. */
export interface Goal {
  readonly atoms: ReadonlySet<string>;
  readonly hypotheses: readonly Hypothesis[];
  readonly target: Formula;
}

const BRACKETS: { readonly [open: string]: string } = { '(': ')', '{': '}', '[': ']' };

/**
 * Reads `theorem name (p q : Prop) (h : p → q) : target := by`.
 * @throws LeanError for what the checker does not understand
 */
export function readStatement(text: string): Goal {
  const reader = new Reader(tokenize(withoutProof(text)));
  const keyword = reader.take();
  if (keyword !== 'theorem' && keyword !== 'lemma' && keyword !== 'example') {
    throw new LeanError(`a statement begins with 'theorem', 'lemma' or 'example', not '${keyword}'`);
  }
  if (keyword !== 'example') reader.name();
  const atoms = new Set<string>();
  const hypotheses: Hypothesis[] = [];
  const used = new Set<string>();
  while (reader.next !== undefined && Object.hasOwn(BRACKETS, reader.next)) {
    const close = BRACKETS[reader.take()];
    const names: string[] = [];
    while (isName(reader.next)) names.push(reader.take());
    for (const name of names) {
      if (used.has(name)) throw new LeanError(`the name ${name} is used twice`);
      used.add(name);
    }
    reader.expect(':');
    if (reader.skip('Prop')) for (const name of names) atoms.add(name);
    else {
      const formula = readFormula(reader, atoms);
      for (const name of names) hypotheses.push({ name, formula });
    }
    reader.expect(close);
  }
  reader.expect(':');
  const target = readFormula(reader, atoms);
  reader.end();
  return { atoms, hypotheses, target };
}

export function showGoal({ hypotheses, target }: Goal): string {
  return [...hypotheses.map(({ name, formula }) => `${name} : ${show(formula)}`), `⊢ ${show(target)}`].join(
    '\n',
  );
}
