import { FALSE, type Formula, not, type Operator, type Sort, type Term, TRUE } from './formula.ts';

/** What a text has wrong; the message is shown to the player. */
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
  '<=': '≤',
  '>=': '≥',
  '!=': '≠',
  Nat: 'ℕ',
  Int: 'ℤ',
  λ: 'fun',
};

const TOKEN =
  /\s+|(<->|->|=>|:=|<=|>=|!=|\/\\|\\\/|\?_|[\p{L}_][\p{L}\p{N}_'₀-₉]*|\d+|[→↔∧∨¬~≤≥≠=<>+\-*/%^()⟨⟩[\]{},:.←|])/uy;

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
    !['fun', 'with', 'ℕ', 'ℤ', 'True', 'False', 'Prop'].includes(token)
  );
}

/** Names that formulas may use. */
export interface Scope {
  readonly atoms: ReadonlySet<string>;
  readonly variables: ReadonlyMap<string, Sort>;
}

/** A formula or term whose names are not looked up yet. */
type Node =
  | { readonly kind: 'leaf'; readonly token: string }
  | { readonly kind: 'prefix'; readonly sign: '¬' | '-'; readonly of: Node }
  | { readonly kind: 'infix'; readonly sign: string; readonly left: Node; readonly right: Node }
  | { readonly kind: 'ascription'; readonly of: Node; readonly sort: Sort };

/** Binding strength and whether the right side may bind equally strongly. */
const INFIX: { readonly [sign: string]: readonly [level: number, rightFirst: boolean] } = {
  '↔': [20, false],
  '→': [25, true],
  '∨': [30, true],
  '∧': [35, true],
  '=': [50, false],
  '≠': [50, false],
  '<': [50, false],
  '≤': [50, false],
  '>': [50, false],
  '≥': [50, false],
  '+': [65, false],
  '-': [65, false],
  '*': [70, false],
  '/': [70, false],
  '%': [70, false],
  '^': [75, true],
};
const NOT_LEVEL = 40;
const MINUS_LEVEL = 72;

function parseNode(reader: Reader, level: number, depth: number): Node {
  if (depth > DEEPEST) throw new LeanError('the formula is nested too deeply');
  let left = parsePrefix(reader, depth);
  for (;;) {
    const sign = reader.next;
    const infix = sign !== undefined && Object.hasOwn(INFIX, sign) ? INFIX[sign] : undefined;
    if (!sign || !infix || infix[0] < level) return left;
    reader.take();
    const right = parseNode(reader, infix[1] ? infix[0] : infix[0] + 1, depth + 1);
    left = { kind: 'infix', sign, left, right };
  }
}

function parsePrefix(reader: Reader, depth: number): Node {
  const token = reader.take();
  if (token === '¬') return { kind: 'prefix', sign: '¬', of: parseNode(reader, NOT_LEVEL, depth + 1) };
  if (token === '-') return { kind: 'prefix', sign: '-', of: parseNode(reader, MINUS_LEVEL, depth + 1) };
  if (token === '(') {
    const inner = parseNode(reader, 0, depth + 1);
    if (reader.skip(':')) {
      const sort = reader.take();
      if (sort !== 'ℕ' && sort !== 'ℤ')
        throw new LeanError(`'${sort}' is no sort of number; there are ℕ and ℤ`);
      reader.expect(')');
      return { kind: 'ascription', of: inner, sort };
    }
    reader.expect(')');
    return inner;
  }
  if (/^\d/.test(token) || isName(token) || token === 'True' || token === 'False')
    return { kind: 'leaf', token };
  throw new LeanError(`a formula cannot begin with '${token}'`);
}

/** The formula that the next tokens spell. @throws LeanError for unknown names and mixed sorts */
export function readFormula(reader: Reader, scope: Scope): Formula {
  return toFormula(parseNode(reader, 0, 0), scope);
}

function toFormula(node: Node, scope: Scope): Formula {
  if (node.kind === 'leaf') {
    if (node.token === 'True') return TRUE;
    if (node.token === 'False') return FALSE;
    if (scope.atoms.has(node.token)) return { kind: 'atom', name: node.token };
    throw new LeanError(`'${node.token}' is no proposition`);
  }
  if (node.kind === 'prefix' && node.sign === '¬') return not(toFormula(node.of, scope));
  if (node.kind === 'infix') {
    switch (node.sign) {
      case '∧':
        return { kind: 'and', left: toFormula(node.left, scope), right: toFormula(node.right, scope) };
      case '∨':
        return { kind: 'or', left: toFormula(node.left, scope), right: toFormula(node.right, scope) };
      case '→':
        return { kind: 'implies', left: toFormula(node.left, scope), right: toFormula(node.right, scope) };
      case '↔':
        return { kind: 'iff', left: toFormula(node.left, scope), right: toFormula(node.right, scope) };
      case '=':
      case '<':
      case '≤':
        return toRelation(node.sign, node.left, node.right, scope);
      case '>':
        return toRelation('<', node.right, node.left, scope);
      case '≥':
        return toRelation('≤', node.right, node.left, scope);
      case '≠':
        return not(toRelation('=', node.left, node.right, scope));
    }
  }
  throw new LeanError('expected a proposition, found a number');
}

function toRelation(relation: '=' | '<' | '≤', left: Node, right: Node, scope: Scope): Formula {
  const sorts = new Set([...sortsIn(left, scope), ...sortsIn(right, scope)]);
  if (sorts.size > 1) throw new LeanError('natural numbers and integers cannot be compared');
  const [sort = 'ℕ'] = sorts;
  return {
    kind: 'relation',
    relation,
    sort,
    left: toTerm(left, scope, sort),
    right: toTerm(right, scope, sort),
  };
}

function sortsIn(node: Node, scope: Scope): Sort[] {
  switch (node.kind) {
    case 'leaf': {
      const sort = scope.variables.get(node.token);
      return sort ? [sort] : [];
    }
    case 'prefix':
      return sortsIn(node.of, scope);
    case 'infix':
      return [...sortsIn(node.left, scope), ...(node.sign === '^' ? [] : sortsIn(node.right, scope))];
    case 'ascription':
      return [node.sort, ...sortsIn(node.of, scope)];
  }
}

const OPERATORS = new Set('+-*/%^');

function toTerm(node: Node, scope: Scope, sort: Sort): Term {
  switch (node.kind) {
    case 'leaf':
      if (/^\d/.test(node.token)) return { kind: 'number', value: BigInt(node.token) };
      if (scope.variables.has(node.token)) return { kind: 'variable', name: node.token };
      throw new LeanError(`'${node.token}' is no number`);
    case 'ascription':
      return toTerm(node.of, scope, sort);
    case 'prefix':
      if (node.sign === '¬') throw new LeanError('expected a number, found a proposition');
      if (sort === 'ℕ') throw new LeanError('natural numbers have no negative');
      return { kind: 'negation', of: toTerm(node.of, scope, sort) };
    case 'infix': {
      if (!OPERATORS.has(node.sign)) throw new LeanError('expected a number, found a proposition');
      const operator = node.sign as Operator;
      const right = toTerm(node.right, scope, sort);
      if (operator === '^' && right.kind !== 'number') throw new LeanError('an exponent must be a numeral');
      return { kind: 'operation', operator, left: toTerm(node.left, scope, sort), right };
    }
  }
}
