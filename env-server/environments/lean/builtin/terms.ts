import {
  FALSE,
  type Formula,
  type Goal,
  type Hypothesis,
  isName,
  LeanError,
  not,
  type Reader,
  same,
  show,
  TRUE,
} from './parser.ts';

/** Proof terms: names, application, projections, pairs, functions and a few constants. */
export type Proof =
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'apply'; readonly to: Proof; readonly argument: Proof }
  | { readonly kind: 'project'; readonly of: Proof; readonly part: string }
  | { readonly kind: 'pair'; readonly parts: readonly Proof[] }
  | { readonly kind: 'function'; readonly parameter: string; readonly body: Proof }
  | { readonly kind: 'hole' };

const PARTS = new Set(['1', '2', 'left', 'right', 'mp', 'mpr']);
const DEEPEST = 100;

/**
 * Parses a term; application is left-associative.
 * @throws LeanError
 */
export function readProof(reader: Reader, depth = 0): Proof {
  if (depth > DEEPEST) throw new LeanError('the term is nested too deeply');
  if (reader.skip('fun')) {
    const parameters = [reader.name()];
    while (isName(reader.next)) parameters.push(reader.name());
    if (!reader.skip('=>')) reader.expect(',');
    const body = readProof(reader, depth + 1);
    return parameters.reduceRight<Proof>(
      (inner, parameter) => ({ kind: 'function', parameter, body: inner }),
      body,
    );
  }
  let proof = readAtom(reader, depth);
  while (startsAtom(reader.next)) {
    proof = { kind: 'apply', to: proof, argument: readAtom(reader, depth) };
  }
  return proof;
}

function startsAtom(token: string | undefined): boolean {
  return token === '(' || token === '⟨' || token === '?_' || isName(token) || token === 'fun';
}

function readAtom(reader: Reader, depth: number): Proof {
  let proof: Proof;
  if (reader.next === 'fun') return readProof(reader, depth + 1);
  if (reader.skip('(')) {
    proof = readProof(reader, depth + 1);
    reader.expect(')');
  } else if (reader.skip('⟨')) {
    const parts = [readProof(reader, depth + 1)];
    while (reader.skip(',')) parts.push(readProof(reader, depth + 1));
    reader.expect('⟩');
    proof = { kind: 'pair', parts };
  } else if (reader.skip('?_')) proof = { kind: 'hole' };
  else {
    let name = reader.next === 'False' || reader.next === 'True' ? reader.take() : reader.name();
    while (reader.next === '.' && /^(?:And|Or|Iff|False|Not|True|not_not)$/.test(name)) {
      reader.take();
      name = `${name}.${reader.name()}`;
    }
    proof = { kind: 'name', name };
  }
  while (reader.skip('.')) {
    const part = reader.take();
    if (!PARTS.has(part)) throw new LeanError(`there is no projection .${part}`);
    proof = { kind: 'project', of: proof, part };
  }
  return proof;
}

/** Context for checking a term: the hypotheses in scope, and the list that collects the goals of holes. */
export interface Context {
  readonly goal: Goal;
  readonly hypotheses: readonly Hypothesis[];
  /** Receives the goal of a `?_`; absent where holes are not allowed. */
  readonly hole?: (goal: Goal) => void;
}

function mismatch(found: Formula, wanted: Formula): LeanError {
  return new LeanError(`type mismatch: the term proves ${show(found)}, expected ${show(wanted)}`);
}

/** @throws LeanError unless the term proves the formula */
export function check(proof: Proof, wanted: Formula, context: Context): void {
  switch (proof.kind) {
    case 'hole':
      if (!context.hole) throw new LeanError('holes are not allowed here; use refine');
      context.hole({ ...context.goal, hypotheses: context.hypotheses, target: wanted });
      return;
    case 'function': {
      if (wanted.kind !== 'implies') throw new LeanError(`a function does not prove ${show(wanted)}`);
      const hypotheses = [...context.hypotheses, { name: proof.parameter, formula: wanted.left }];
      check(proof.body, wanted.right, { ...context, hypotheses });
      return;
    }
    case 'pair':
      checkPair(proof.parts, wanted, context);
      return;
    case 'apply':
    case 'name':
      if (checkConstructor(proof, wanted, context)) return;
  }
  const found = infer(proof, context);
  if (!same(found, wanted)) throw mismatch(found, wanted);
}

function checkPair(parts: readonly Proof[], wanted: Formula, context: Context): void {
  if (wanted.kind !== 'and' && wanted.kind !== 'iff') {
    throw new LeanError(`⟨…⟩ does not prove ${show(wanted)}`);
  }
  if (parts.length < 2) throw new LeanError(`⟨…⟩ needs two parts to prove ${show(wanted)}`);
  const [left, right] = sides(wanted);
  check(parts[0], left, context);
  if (parts.length === 2) check(parts[1], right, context);
  else checkPair(parts.slice(1), right, context);
}

/** The two parts that prove a conjunction or an equivalence. */
export function sides(formula: Formula & { kind: 'and' | 'iff' | 'or' | 'implies' }): [Formula, Formula] {
  const { kind, left, right } = formula;
  if (kind !== 'iff') return [left, right];
  return [
    { kind: 'implies', left, right },
    { kind: 'implies', left: right, right: left },
  ];
}

/** Checks constants with a type that depends on the expected formula. Returns true if the term was one of them. */
function checkConstructor(proof: Proof, wanted: Formula, context: Context): boolean {
  const { head, parts } = spine(proof);
  if (head.kind !== 'name' || isHypothesis(head.name, context)) return false;
  const needs = (count: number): void => {
    if (parts.length !== count)
      throw new LeanError(`${head.name} takes ${count} arguments, not ${parts.length}`);
  };
  switch (head.name) {
    case 'Or.inl':
    case 'Or.inr':
      needs(1);
      if (wanted.kind !== 'or') throw new LeanError(`${head.name} does not prove ${show(wanted)}`);
      check(parts[0], head.name === 'Or.inl' ? wanted.left : wanted.right, context);
      return true;
    case 'And.intro':
    case 'Iff.intro':
      needs(2);
      if (wanted.kind !== (head.name === 'And.intro' ? 'and' : 'iff')) {
        throw new LeanError(`${head.name} does not prove ${show(wanted)}`);
      }
      checkPair(parts, wanted, context);
      return true;
    case 'False.elim':
      needs(1);
      check(parts[0], FALSE, context);
      return true;
    case 'absurd': {
      needs(2);
      check(parts[1], not(infer(parts[0], context)), context);
      return true;
    }
    case 'trivial':
    case 'True.intro':
      needs(0);
      if (!same(wanted, TRUE)) throw mismatch(TRUE, wanted);
      return true;
    case 'id':
      if (parts.length !== 1) return false;
      check(parts[0], wanted, context);
      return true;
    default:
      return false;
  }
}

function isHypothesis(name: string, { hypotheses }: Context): boolean {
  return hypotheses.some(hypothesis => hypothesis.name === name);
}

function spine(proof: Proof): { head: Proof; parts: Proof[] } {
  const parts: Proof[] = [];
  let head = proof;
  while (head.kind === 'apply') {
    parts.unshift(head.argument);
    head = head.to;
  }
  return { head, parts };
}

/** Projections under their full names. */
const PROJECTORS = new Map([
  ['And.left', 'left'],
  ['And.right', 'right'],
  ['Iff.mp', 'mp'],
  ['Iff.mpr', 'mpr'],
]);

/** Formula that a term proves. @throws LeanError */
export function infer(proof: Proof, context: Context): Formula {
  switch (proof.kind) {
    case 'name': {
      const hypothesis = context.hypotheses.findLast(({ name }) => name === proof.name);
      if (hypothesis) return hypothesis.formula;
      if (proof.name === 'trivial' || proof.name === 'True.intro') return TRUE;
      throw new LeanError(`unknown identifier '${proof.name}'`);
    }
    case 'apply': {
      const { head, parts } = spine(proof);
      if (
        head.kind === 'name' &&
        head.name === 'And.intro' &&
        parts.length === 2 &&
        !isHypothesis(head.name, context)
      ) {
        return { kind: 'and', left: infer(parts[0], context), right: infer(parts[1], context) };
      }
      const part =
        head.kind === 'name' && !isHypothesis(head.name, context) ? PROJECTORS.get(head.name) : undefined;
      if (part && parts.length === 1) return project(infer(parts[0], context), part);
      const found = infer(proof.to, context);
      if (found.kind !== 'implies') throw new LeanError(`${show(found)} is not applied to anything`);
      check(proof.argument, found.left, context);
      return found.right;
    }
    case 'project':
      return project(infer(proof.of, context), proof.part);
    case 'pair':
      if (proof.parts.length !== 2) throw new LeanError('cannot infer what ⟨…⟩ proves');
      return { kind: 'and', left: infer(proof.parts[0], context), right: infer(proof.parts[1], context) };
    default:
      throw new LeanError('cannot infer what this term proves; state it with have');
  }
}

function project(formula: Formula, part: string): Formula {
  if (formula.kind === 'and' || formula.kind === 'iff') {
    const [first, second] = sides(formula);
    const names = formula.kind === 'and' ? ['1', 'left', '2', 'right'] : ['1', 'mp', '2', 'mpr'];
    const at = names.indexOf(part);
    if (at >= 0) return at < 2 ? first : second;
  }
  throw new LeanError(`${show(formula)} has no part .${part}`);
}
