/** What a proof assistant says about a statement with the tactics so far. */
export type Verdict = {
  /** `rejected`: the last tactic fails. `accepted`: goals remain. `timeout`: no answer in time. */
  readonly status: 'accepted' | 'proved' | 'rejected' | 'timeout';
  readonly messages: readonly string[];
};

export interface Theorem {
  readonly name: string;
  /** In words; empty where there are none. */
  readonly informal: string;
  /** Imports and openings in front of the statement. */
  readonly header: string;
  /** `theorem … : … := by`. */
  readonly statement: string;
  /** Tactics that prove it, where they are known. */
  readonly proof: readonly string[];
}

/** Checks the whole proof, so that nothing has to be kept between steps. */
export interface Backend {
  check(theorem: Theorem, tactics: readonly string[]): Verdict | Promise<Verdict>;
}

/** The back-end cannot be reached or does not keep to its protocol: a fault, not a verdict. */
export class BackendFailed extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BackendFailed';
  }
}

/** The source text of a proof as Lean reads it. */
export function sourceOf({ header, statement }: Theorem, tactics: readonly string[]): string {
  const lines = tactics.flatMap(tactic => tactic.split('\n').map(line => `  ${line}`));
  return `${[...(header === '' ? [] : [header, '']), statement, ...lines].join('\n')}\n`;
}

/** A message of Lean's, as its REPL and Kimina's server give it. */
export interface LeanMessage {
  readonly severity?: string;
  readonly data?: string;
  readonly message?: string;
}

/** The verdict that Lean's messages amount to: goals left over are no error. */
export function verdictOf(messages: readonly LeanMessage[], sorries: readonly unknown[]): Verdict {
  const texts = messages.map(({ data, message }) => data ?? message ?? '');
  const errors = messages.flatMap(({ severity }, index) => (severity === 'error' ? [texts[index]] : []));
  const blocking = errors.filter(text => !text.toLowerCase().includes('unsolved goals'));
  if (blocking.length > 0) return { status: 'rejected', messages: blocking };
  if (sorries.length > 0 || texts.some(text => text.includes("declaration uses 'sorry'")))
    return { status: 'rejected', messages: ['sorry is no proof'] };
  return { status: errors.length > 0 ? 'accepted' : 'proved', messages: texts };
}
