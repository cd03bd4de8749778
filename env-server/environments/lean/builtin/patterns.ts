import { type Formula, show } from './formula.ts';
import { contextOf, disjunction, find, fresh, withHypothesis, without } from './goals.ts';
import { LeanError, type Reader } from './parser.ts';
import type { Goal } from './statement.ts';
import { infer, readProof, sides } from './terms.ts';

/** Tactics that take a hypothesis apart: rcases, obtain and cases. */

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

export function rcases(goal: Goal, reader: Reader): Goal[] {
  const proof = readProof(reader);
  const formula = infer(proof, contextOf(goal));
  const rest = proof.kind === 'name' ? without(goal, proof.name) : goal;
  if (!reader.skip('with')) return cased(rest, formula, [], proof.kind === 'name' ? proof.name : fresh(goal));
  return takeApart(rest, formula, readPattern(reader));
}

export function obtain(goal: Goal, reader: Reader): Goal[] {
  const pattern = readPattern(reader);
  reader.expect(':=');
  const proof = readProof(reader);
  const formula = infer(proof, contextOf(goal));
  return takeApart(proof.kind === 'name' ? without(goal, proof.name) : goal, formula, pattern);
}

export function cases(goal: Goal, reader: Reader): Goal[] {
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
