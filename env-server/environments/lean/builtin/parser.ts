import { withoutProof } from '../backend.ts';

/** Formulas of propositional logic; `¬p` is `p → False`. */
export type Formula =
  | { readonly kind: 'true' }
  | { readonly kind: 'false' }
  | { readonly kind: 'atom'; readonly name: string }
  | { readonly kind: 'and' | 'or' | 'implies' | 'iff'; readonly left: Formula; readonly right: Formula };

export const TRUE: Formula = { kind: 'true' };
export const FALSE: Formula = { kind: 'false' };

export function not(formula: Formula): Formula {
  return { kind: 'implies', left: formula, right: FALSE };
}

/** Formula that `formula` negates, if it is a negation. */
export function negated(formula: Formula): Formula | undefined {
  return formula.kind === 'implies' && formula.right.kind === 'false' ? formula.left : undefined;
}

const LEVELS = { iff: 20, implies: 25, or: 30, and: 35 } as const;
const SIGNS = { iff: '↔', implies: '→', or: '∨', and: '∧' } as const;
const NOT_LEVEL = 40;

/** The formula in Lean's notation; different formulas have different texts. */
export function show(formula: Formula, level = 0): string {
  const wrap = (text: string, own: number) => (own < level ? `(${text})` : text);
  switch (formula.kind) {
    case 'true':
      return 'True';
    case 'false':
      return 'False';
    case 'atom':
      return formula.name;
    default: {
      const inner = negated(formula);
      if (inner) return wrap(`¬${show(inner, NOT_LEVEL)}`, NOT_LEVEL);
      const own = LEVELS[formula.kind];
      const rightLevel = formula.kind === 'iff' ? own + 1 : own;
      return wrap(
        `${show(formula.left, own + 1)} ${SIGNS[formula.kind]} ${show(formula.right, rightLevel)}`,
        own,
      );
    }
  }
}

export function same(a: Formula, b: Formula): boolean {
  return show(a) === show(b);
}

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
 * Parses `theorem name (p q : Prop) (h : p → q) : target := by`.
 * @throws LeanError for anything outside propositional logic
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

/** Fault in a text; the message is shown to the player. */
export class LeanError extends Error {
  override readonly name = 'LeanError';
}

const MAX_TEXT_LENGTH = 4000;
const DEEPEST = 200;

const SPELLINGS: { readonly [token: string]: string } = {
  '->': '→',
  '<->': '↔',
  '/\\': '∧',
  '\\/': '∨',
  '~': '¬',
  λ: 'fun',
};

const TOKEN = /\s+|(<->|->|=>|:=|\/\\|\\\/|\?_|[\p{L}_][\p{L}\p{N}_'₀-₉]*|\d+|[→↔∧∨¬~()⟨⟩[\]{},:.|])/uy;

/**
 * Splits a text into tokens, with ASCII spellings replaced by their symbols.
 * @throws LeanError
 */
export function tokenize(text: string): string[] {
  if (text.length > MAX_TEXT_LENGTH) throw new LeanError(`at most ${MAX_TEXT_LENGTH} characters are read`);
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match)
      throw new LeanError(`unexpected character '${String.fromCodePoint(text.codePointAt(at) ?? 32)}'`);
    if (match[1] !== undefined) {
      tokens.push(Object.hasOwn(SPELLINGS, match[1]) ? SPELLINGS[match[1]] : match[1]);
    }
  }
  return tokens;
}

/** Reads tokens one by one. */
export class Reader {
  readonly #tokens: readonly string[];
  #at = 0;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  get next(): string | undefined {
    return this.#tokens[this.#at];
  }

  get isDone(): boolean {
    return this.#at >= this.#tokens.length;
  }

  take(): string {
    const token = this.#tokens[this.#at];
    if (token === undefined) throw new LeanError('unexpected end of input');
    this.#at++;
    return token;
  }

  /** Takes the token if it is the next one. */
  skip(token: string): boolean {
    if (this.next !== token) return false;
    this.#at++;
    return true;
  }

  expect(token: string): void {
    if (!this.skip(token))
      throw new LeanError(`expected '${token}', found ${this.next ? `'${this.next}'` : 'the end'}`);
  }

  name(): string {
    const token = this.take();
    if (!isName(token)) throw new LeanError(`expected a name, found '${token}'`);
    return token;
  }

  end(): void {
    if (!this.isDone) throw new LeanError(`unexpected '${this.next}'`);
  }
}

export function isName(token: string | undefined): token is string {
  return (
    token !== undefined &&
    /^[\p{L}_]/u.test(token) &&
    !['fun', 'with', 'True', 'False', 'Prop'].includes(token)
  );
}

/** The names of propositions. */
export type Atoms = ReadonlySet<string>;

/** Binding strength, and whether the right side may have the same strength. */
const INFIX = {
  '↔': { kind: 'iff', level: 20, rightFirst: false },
  '→': { kind: 'implies', level: 25, rightFirst: true },
  '∨': { kind: 'or', level: 30, rightFirst: true },
  '∧': { kind: 'and', level: 35, rightFirst: true },
} as const;

/**
 * Parses a formula from the next tokens.
 * @throws LeanError for unknown names and anything outside propositional logic
 */
export function readFormula(reader: Reader, atoms: Atoms, level = 0, depth = 0): Formula {
  if (depth > DEEPEST) throw new LeanError('the formula is nested too deeply');
  let left = readOperand(reader, atoms, depth);
  for (;;) {
    const sign = reader.next;
    if (sign === undefined || !Object.hasOwn(INFIX, sign)) return left;
    const { kind, level: own, rightFirst } = INFIX[sign as keyof typeof INFIX];
    if (own < level) return left;
    reader.take();
    left = { kind, left, right: readFormula(reader, atoms, rightFirst ? own : own + 1, depth + 1) };
  }
}

function readOperand(reader: Reader, atoms: Atoms, depth: number): Formula {
  const token = reader.take();
  if (token === '¬') return not(readFormula(reader, atoms, NOT_LEVEL, depth + 1));
  if (token === '(') {
    const inner = readFormula(reader, atoms, 0, depth + 1);
    reader.expect(')');
    return inner;
  }
  if (token === 'True') return TRUE;
  if (token === 'False') return FALSE;
  if (atoms.has(token)) return { kind: 'atom', name: token };
  throw new LeanError(`'${token}' is not a proposition; without Lean only propositional logic is played`);
}
