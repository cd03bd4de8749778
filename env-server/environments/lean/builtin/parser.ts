import { FALSE, type Formula, not, TRUE } from './formula.ts';

/** Fault in a text; the message is shown to the player. */
export class LeanError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'LeanError';
  }
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

/** Splits a text into tokens, ASCII spellings replaced by their signs. @throws LeanError */
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

/** Binding strength and whether the right side may bind equally strongly. */
const INFIX = {
  '↔': { kind: 'iff', level: 20, rightFirst: false },
  '→': { kind: 'implies', level: 25, rightFirst: true },
  '∨': { kind: 'or', level: 30, rightFirst: true },
  '∧': { kind: 'and', level: 35, rightFirst: true },
} as const;
const NOT_LEVEL = 40;

/** The formula that the next tokens spell. @throws LeanError for unknown names and what is no propositional logic */
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
  throw new LeanError(`'${token}' is no proposition; without Lean only propositional logic is played`);
}
