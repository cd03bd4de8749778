/** The axioms of Lean's own logic. */
const AXIOMS = new Set(['propext', 'Classical.choice', 'Quot.sound']);
/** The name given to an `example`. */
const NAMELESS = 'the_example';

/** Result of checking a statement with the tactics so far. */
export type Verdict = {
  /** `rejected`: the last tactic fails. `accepted`: goals remain. `timeout`: no answer in time. */
  readonly status: 'accepted' | 'proved' | 'rejected' | 'timeout';
  readonly messages: readonly string[];
};

/** Lean took longer than it may. */
export const NO_ANSWER: Verdict = { status: 'timeout', messages: ['no answer in time'] };

export interface Theorem {
  readonly name: string;
  /** The remaining goals in words; empty where there are none. */
  readonly informal: string;
  /** Imports and `open` commands before the statement. */
  readonly header: string;
  /** `theorem … : … := by`. */
  readonly statement: string;
  /** Tactics that prove it, where known. */
  readonly proof: readonly string[];
}

/** Checks the whole proof, so that nothing is kept between steps. */
export interface Backend {
  check(theorem: Theorem, tactics: readonly string[]): Verdict | Promise<Verdict>;
}

/** The back-end cannot be reached or breaks its protocol: a fault, not a verdict. */
export class BackendFailed extends Error {
  override readonly name = 'BackendFailed';
}

/** A statement without `:=`, `by` and `sorry` at its end. */
export function withoutProof(statement: string): string {
  const text = statement.trim();
  const end = text.lastIndexOf(':=');
  return end >= 0 && /^:=\s*(?:by\b\s*)?(?:sorry)?$/.test(text.slice(end))
    ? text.slice(0, end).trimEnd()
    : text;
}

/** The source text of a proof as Lean reads it. */
export function sourceOf({ header, statement }: Theorem, tactics: readonly string[]): string {
  const lines = tactics.flatMap(tactic => tactic.split('\n').map(line => `  ${line}`));
  return `${[...(header === '' ? [] : [header, '']), named(statement), ...lines].join('\n')}\n`;
}

/** The theorem's name in Lean; an `example` is given one. */
function nameOf(statement: string): string {
  return /^(?:theorem|lemma)\s+([^\s:({[⦃]+)/m.exec(named(statement))?.[1] ?? '';
}

function named(statement: string): string {
  return statement.replace(/^example\b/m, `theorem ${NAMELESS}`);
}

/** Namespaces that a header leaves open. */
function namespacesOf(header: string): string[] {
  const open: string[] = [];
  for (const [, word, name] of header.matchAll(
    /^(namespace|(?:noncomputable )?section|end)\b[ \t]*(\S*)/gm,
  )) {
    if (word === 'end') open.pop();
    else open.push(word === 'namespace' ? name : '');
  }
  return open.filter(name => name !== '');
}

/**
 * The command by which Lean reports the axioms of a theorem. The name is whole: a proof that opened a namespace could give another
 * theorem in it the short one.
 */
export function axiomsCommand({ header, statement }: Pick<Theorem, 'header' | 'statement'>): string {
  return `#print axioms ${['_root_', ...namespacesOf(header), nameOf(statement)].join('.')}`;
}

/** The verdict on an accepted proof, once Lean has reported its axioms. */
export function verdictOnAxioms(proved: Verdict, messages: readonly LeanMessage[]): Verdict {
  const texts = messages.map(({ data, message }) => data ?? message ?? '');
  const listed = texts.flatMap(text => /depends on axioms: \[([^\]]*)\]/.exec(text)?.[1] ?? []);
  if (listed.length === 0 && texts.some(text => text.includes('does not depend on any axioms')))
    return proved;
  if (listed.length === 0)
    return { status: 'rejected', messages: ['Lean did not say on which axioms the proof rests', ...texts] };
  const others = listed
    .flatMap(list => list.split(','))
    .map(axiom => axiom.trim())
    .filter(axiom => !AXIOMS.has(axiom));
  return others.length === 0
    ? proved
    : { status: 'rejected', messages: [`the proof rests on ${others.join(', ')}`] };
}

/** A message of Lean, as its REPL, Kimina's server and `lean --json` return it. */
export interface LeanMessage {
  readonly severity?: string;
  readonly data?: string;
  readonly message?: string;
  /** First position; lines are counted from 1. */
  readonly pos?: { readonly line: number } | null;
}

/**
 * The verdict from Lean's messages about the source of a theorem with tactics. Goals of the theorem itself may remain:
 * Lean reports them at the statement's own `by`. Those of a proof inside a tactic may not.
 */
export function verdictOf(
  theorem: Theorem,
  messages: readonly LeanMessage[],
  sorries: readonly unknown[],
): Verdict {
  const lastLine = sourceOf(theorem, []).trimEnd().split('\n').length;
  const texts = messages.map(({ data, message }) => data ?? message ?? '');
  const errors = messages.flatMap(({ severity, pos }, index) =>
    severity === 'error' ? [{ text: texts[index], line: pos?.line ?? Number.POSITIVE_INFINITY }] : [],
  );
  const blocking = errors.filter(({ text, line }) => !text.startsWith('unsolved goals') || line > lastLine);
  if (blocking.length > 0) return { status: 'rejected', messages: blocking.map(({ text }) => text) };
  if (sorries.length > 0 || texts.some(text => /declaration uses .sorry/.test(text)))
    return { status: 'rejected', messages: ['sorry is not a proof'] };
  return { status: errors.length > 0 ? 'accepted' : 'proved', messages: texts };
}

/** The verdict on a text that ends with {@link axiomsCommand}: messages after the tactics are about the axioms. */
export function verdictOfText(
  theorem: Theorem,
  tactics: readonly string[],
  messages: readonly LeanMessage[],
): Verdict {
  const lastLine = sourceOf(theorem, tactics).trimEnd().split('\n').length;
  const isLater = ({ pos }: LeanMessage) => (pos?.line ?? 0) > lastLine;
  const verdict = verdictOf(
    theorem,
    messages.filter(message => !isLater(message)),
    [],
  );
  return verdict.status === 'proved' ? verdictOnAxioms(verdict, messages.filter(isLater)) : verdict;
}
