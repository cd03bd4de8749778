import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { InvalidField, shippedRecords, textField } from '../core/datasets/records.ts';
import { dataFile, indexOption } from '../core/datasets/word-problems.ts';
import { choiceSetting, integerSetting } from '../core/settings.ts';
import { isInSplit, type Split, splitSchema } from '../core/splits.ts';
import { type Theorem, withoutProof } from './backend.ts';

/**
 * Theorems made from schemes, each with a proof. Statements and proofs use core Lean only, so that the same text checks
 * in Lean alone, with Mathlib and in the REPL.
 */

const TOPICS = ['logic', 'arithmetic', 'mixed'] as const;
type Topic = (typeof TOPICS)[number];

interface Scheme {
  readonly name: string;
  /** Hypotheses and goal, with A, B, C, D for propositions. */
  readonly binders: string;
  readonly goal: string;
  readonly proof: readonly string[];
}

const scheme = (name: string, binders: string, goal: string, ...proof: string[]): Scheme => ({
  name,
  binders,
  goal,
  proof,
});

/** Schemes of propositional logic. Their order matters: seeds draw from it. */
const LOGIC: readonly Scheme[] = shippedRecords(new URL('./schemes.jsonl', import.meta.url));

/** Theorems with the numbers m, n, k in binders and goals. Only Lean itself can check these. */
const ARITHMETIC: readonly ((m: number, n: number, k: number) => Scheme)[] = [
  (m, n) => scheme('sum', '', `${m} + ${n} = ${m + n}`, 'decide'),
  (m, n, k) => scheme('product', '', `${m} * ${n} + ${k} = ${m * n + k}`, 'decide'),
  (m, n, k) => scheme('compare', '', `${m} * ${n} < ${m * n + k}`, 'decide'),
  (m, n, k) => scheme('unequal', '', `${m} + ${n} ≠ ${m + n + k}`, 'decide'),
  (m, n) => scheme('rest', '', `${m * n + 1} % ${n + 1} = ${(m * n + 1) % (n + 1)}`, 'decide'),
  () => scheme('square', '(x y : Int)', '(x + y) ^ 2 = x ^ 2 + 2 * x * y + y ^ 2', 'grind'),
  m =>
    scheme(
      'scaled_difference',
      '(x y : Int)',
      `(x - ${m} * y) * (x + ${m} * y) = x ^ 2 - ${m * m} * y ^ 2`,
      'grind',
    ),
  m => scheme('commute', '(a b : Nat)', `${m} * a + b = b + a * ${m}`, 'omega'),
  (m, n) => scheme('solve', `(x : Int) (h : ${m} * x + ${n} = ${m * 7 + n})`, 'x = 7', 'omega'),
  (m, n, k) =>
    scheme('bound', `(x : Int) (h : x ≤ ${m}) (h2 : ${n} ≤ x + ${k})`, `(${n} : Int) ≤ ${m + k}`, 'omega'),
  (m, n) => scheme('pair', `(x y : Int) (h : x + y = ${m + n}) (h2 : x - y = ${m - n})`, `x = ${m}`, 'omega'),
  (m, n, k) =>
    scheme('natural', `(a b : Nat) (h : a + ${m} = b) (h2 : b < ${m + n})`, `a < ${n + k}`, 'omega'),
  (m, n) =>
    scheme(
      'rewrite',
      `(a b : Nat) (h : a = b + ${m}) (h2 : b = ${n})`,
      `a = ${n + m}`,
      'rw [h2] at h',
      'omega',
    ),
  (m, n, k) =>
    scheme(
      'both_bounds',
      `(x : Int) (h : ${m} < x) (h2 : x < ${m + 2})`,
      `x = ${m + 1} ∧ x < ${m + 1 + n + k}`,
      'constructor',
      'omega',
      'omega',
    ),
];

const NAMES = ['p', 'q', 'r', 's', 't', 'u'];
const MAX_NUMBER = 20;

/** A theorem of the split, which its statement decides. */
export function drawTheorem(topic: Topic, split: Split, rng: Random): Theorem {
  for (;;) {
    const kind = topic === 'mixed' ? rng.choice(TOPICS.slice(0, 2)) : topic;
    const theorem = kind === 'logic' ? drawLogic(rng) : drawArithmetic(rng);
    if (isInSplit(() => theorem.statement, split)) return theorem;
  }
}

/** A scheme with a random formula for each of its letters. */
function drawLogic(rng: Random): Theorem {
  const { name, binders, goal, proof } = rng.choice(LOGIC);
  const letters = rng.shuffle(NAMES);
  const used = new Set<string>();
  const formula = (): string => {
    const [a, b] = rng.shuffle(letters.slice(0, 4));
    const shapes = [a, a, `(${a} ∧ ${b})`, `(${a} ∨ ${b})`, `(${a} → ${b})`, `(¬${a})`];
    const shape = rng.choice(shapes);
    for (const letter of shape.match(/[a-z]/g) ?? []) used.add(letter);
    return shape;
  };
  const meanings: { [letter: string]: string } = { A: formula(), B: formula(), C: formula(), D: formula() };
  const fill = (text: string) => text.replaceAll(/\b[ABCD]\b/g, letter => meanings[letter]);
  const atoms = [...used].sort().join(' ');
  return makeTheorem(name, `(${atoms} : Prop) ${fill(binders)}`, fill(goal), proof.map(fill));
}

function drawArithmetic(rng: Random): Theorem {
  const [m, n, k] = [0, 1, 2].map(() => 1 + rng.integer(MAX_NUMBER));
  const { name, binders, goal, proof } = rng.choice(ARITHMETIC)(m, n, k);
  return makeTheorem(name, binders, goal, proof);
}

function makeTheorem(name: string, binders: string, goal: string, proof: readonly string[]): Theorem {
  const text = ['theorem', name, binders.trim(), ':', goal, ':= by'].filter(Boolean).join(' ');
  return { name, informal: '', header: '', statement: text, proof };
}

/**
 * A record in miniF2F's form.
 * @throws InvalidField
 */
export function readTheorem(record: JsonObject): Theorem {
  const optional = (...fields: string[]): string => {
    const field = fields.find(name => typeof record[name] === 'string');
    return field === undefined ? '' : (record[field] as string).trim();
  };
  const formal = textField(record, 'formal_statement').trim();
  if (!/^(?:theorem|lemma|example)\b/m.test(formal)) {
    throw new InvalidField('formal_statement', 'expected a theorem, lemma or example');
  }
  return {
    name: optional('name', 'id'),
    informal: optional('natural_language_statement', 'informal_statement', 'informal_prefix'),
    header: [optional('imports', 'header'), optional('preamble')].filter(Boolean).join('\n'),
    statement: openStatement(formal),
    proof: [],
  };
}

/** The statement up to and with `:= by`. */
export function openStatement(statement: string): string {
  return `${withoutProof(statement)} := by`;
}

export const MAX_STEPS = 100;

export const configSchema = closed({
  backend: choiceSetting(
    ['auto', 'lean', 'kimina', 'repl', 'builtin', 'imitation'],
    'auto',
    'Who checks proofs: `lean` on the server’s machine, a Kimina Lean server, a local Lean REPL process, or the built-in checker, which knows propositional logic only. `auto` takes Lean where it is installed, else the built-in checker. `imitation` is a former name of that.',
  ),
  server_url: Type.Optional(
    Type.String({ minLength: 1, maxLength: 2048, description: 'Address of the Kimina Lean server.' }),
  ),
  timeout_ms: integerSetting(60_000, [100, 600_000], 'Time for one check by Lean.'),
  topic: choiceSetting(TOPICS, 'logic', 'What the generated theorems are about; all but logic needs Lean.'),
  automation: choiceSetting(
    ['none', 'arithmetic', 'all'],
    'none',
    'Has no effect any more: the built-in checker has no deciding tactics.',
  ),
  split: splitSchema,
  data: dataFile(
    'File of theorems instead of generated ones: .jsonl, .json or .parquet in the form of miniF2F (formal_statement, header, name).',
  ),
  header: Type.String({
    default: '',
    maxLength: 4000,
    description: 'Imports for theorems that bring none, e.g. import Mathlib.',
  }),
  max_steps: integerSetting(MAX_STEPS, [1], 'Tactics before the episode is cut, rejected ones included.'),
});

export const optionsSchema = closed({
  statement: Type.Optional(
    Type.String({ minLength: 1, maxLength: 4000, description: 'theorem … : … := by' }),
  ),
  informal: Type.Optional(Type.String({ maxLength: 4000, description: 'The statement in words.' })),
  index: indexOption('Theorem of the data file within the split, from 0.'),
});

export type LeanConfig = Static<typeof configSchema>;

export type LeanOptions = Static<typeof optionsSchema>;
