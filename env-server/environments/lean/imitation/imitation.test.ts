import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { drawTheorem } from '../theorems.ts';
import { followsLinearly, isIdentity } from './arithmetic.ts';
import { type Formula, keyOf, show } from './formula.ts';
import { imitationBackend } from './imitation.ts';
import { Reader, readFormula, tokenize } from './parser.ts';
import { type Goal, readStatement } from './statement.ts';
import { applyTactic } from './tactics.ts';
import { evaluateTruth } from './truth.ts';

const backend = imitationBackend('all');

async function verdict(statement: string, ...tactics: string[]) {
  const theorem = { name: '', informal: '', header: '', statement, proof: [] };
  return backend.check(theorem, tactics);
}

t.test('every generated theorem is proved by the proof that comes with it, step by step', async t => {
  const schemes = new Set<string>();
  for (const topic of ['logic', 'arithmetic'] as const) {
    for (let seed = 0; seed < 400; seed++) {
      const theorem = drawTheorem(topic, 'any', Random.fromSeed(seed));
      schemes.add(theorem.name);
      for (let count = 1; count <= theorem.proof.length; count++) {
        const proof = theorem.proof.slice(0, count);
        const { status, messages } = await imitationBackend('arithmetic').check(theorem, proof);
        const wanted = count === theorem.proof.length ? 'proved' : 'accepted';
        if (status !== wanted) t.fail(`${theorem.statement} ${proof}: ${status} ${messages}`);
      }
    }
  }
  t.ok(schemes.size >= 38, `${schemes.size} schemes`);
});

t.test('formulas are read with Lean’s precedences and shown again', async t => {
  const scope = {
    atoms: new Set(['p', 'q', 'r']),
    variables: new Map([
      ['x', 'ℤ' as const],
      ['y', 'ℤ' as const],
    ]),
  };
  const read = (text: string) => {
    const reader = new Reader(tokenize(text));
    const formula = readFormula(reader, scope);
    reader.end();
    return show(formula);
  };
  const same: [string, string][] = [
    ['p -> q -> r', 'p → q → r'],
    ['(p → q) → r', '(p → q) → r'],
    ['p ∧ q ∨ r', 'p ∧ q ∨ r'],
    ['p ∧ (q ∨ r)', 'p ∧ (q ∨ r)'],
    ['¬p ∧ q ↔ r', '¬p ∧ q ↔ r'],
    ['¬(p ∧ q)', '¬(p ∧ q)'],
    ['¬ ¬ p', '¬¬p'],
    ['p /\\ q /\\ r', 'p ∧ q ∧ r'],
    ['(p ∧ q) ∧ r', '(p ∧ q) ∧ r'],
    ['x - y - 1 = x - (y + 1)', 'x - y - 1 = x - (y + 1)'],
    ['x > y', 'y < x'],
    ['x >= -y', '-y ≤ x'],
    ['x ≠ 2', '¬x = 2'],
    ['-x ^ 2 * y < (3 : ℤ)', '-x ^ 2 * y < 3'],
    ['2 ^ 3 ^ 2 = x', '2 ^ 3 ^ 2 = x'],
  ];
  for (const [text, wanted] of same.slice(0, -1)) t.equal(read(text), wanted);
  t.throws(() => read('2 ^ 3 ^ 2 = x'), /numeral/);
  for (const text of ['p ∧', 'p q', 'z', 'p + 1', 'x ∧ p', '(p', 'p $ q', '(2 : ℕ) = x'])
    t.throws(() => read(text), { name: 'LeanError' });
  t.throws(() => read(`${'('.repeat(500)}p${')'.repeat(500)}`), /too deeply/);
});

t.test('goals that hold are proved', async t => {
  const proofs: [string, ...string[]][] = [
    [
      'theorem a (p q : Prop) (h : p ∧ q) : q ∧ p := by',
      'refine ⟨?_, ?_⟩',
      'exact h.right',
      'exact And.left h',
    ],
    ['theorem b (p q : Prop) : p ∧ q → q ∧ p := by', 'exact fun h => ⟨h.2, h.1⟩'],
    ['theorem c (p q r : Prop) : p ∧ q ∧ r → r := by', 'intro h', 'rcases h with ⟨_, _, k⟩', 'assumption'],
    [
      'theorem d (p q : Prop) (h : p ∨ q) (k : ¬p) : q := by',
      'cases h with a b',
      'exact absurd a k',
      'exact b',
    ],
    ['theorem e (p : Prop) (h : False) : p := by', 'cases h'],
    ['theorem f (p q : Prop) (h : p ↔ q) (k : q) : p := by', 'have m : q → p := h.mpr', 'apply m', 'trivial'],
    ['theorem g (p q : Prop) : p → p ∨ q := by', 'intro h', 'exact Or.inl h'],
    ['theorem h (p q : Prop) : ¬(p ∧ q) → p → ¬q := by', 'tauto'],
    ['theorem i (a b : ℕ) (h : a = b) : a + a = b + b := by', 'rw [h]'],
    ['theorem j (a b : ℕ) (h : a = b) : b + 0 = a + 0 := by', 'rw [← h]'],
    ['theorem k (x : ℤ) (h : 2 * x = 6) : x = 3 := by', 'omega'],
    ['theorem l (x : ℤ) (h : 2 * x < 7) : x ≤ 3 := by', 'omega'],
    ['theorem m (a b : ℕ) (h : a - b = 3) : a - b < 4 := by', 'omega'],
    ['theorem n : (7 : ℤ) / 2 = 3 ∧ (-7 : ℤ) / 2 = -4 ∧ (-7 : ℤ) % 2 = 1 := by', 'norm_num'],
    ['theorem o : 2 - 3 = 0 := by', 'decide'],
    ['theorem p1 : 5 / 0 = 0 ∧ 5 % 0 = 5 := by', 'norm_num'],
    ['theorem q1 (a : ℕ) (h : a < 0) : False := by', 'omega'],
    ['theorem r1 (a b c : ℤ) (h : a < b) (k : b < c) : a + 1 < c := by', 'linarith'],
    ['theorem s1 : 2 ^ 10 = 1024 := by', 'rfl'],
    ['theorem t1 (x y : ℤ) (h : ¬x ≤ y) : y < x := by', 'omega'],
    [
      'theorem u1 (p q : Prop) (h : p) (k : q) : p ∧ q := by',
      'have m : p ∧ q',
      'constructor',
      '· exact h',
      '· exact k',
      'exact m',
    ],
  ];
  for (const [statement, ...tactics] of proofs) {
    const { status, messages } = await verdict(statement, ...tactics);
    t.equal(status, 'proved', `${statement} ${messages}`);
  }
});

t.test('goals that do not hold, and steps that do not follow, are rejected', async t => {
  const wrong: [string, ...string[]][] = [
    ['theorem a (p q : Prop) (h : p ∨ q) : p := by', 'exact h'],
    ['theorem b (p q : Prop) (h : p ∨ q) : p := by', 'tauto'],
    ['theorem c (p q : Prop) (h : p → q) (k : q) : p := by', 'exact h k'],
    ['theorem d (p q : Prop) (h : p → q) : q := by', 'exact h'],
    ['theorem e (p q : Prop) : p ∨ q := by', 'constructor'],
    ['theorem f (p q : Prop) (h : p) : p ∧ q := by', 'exact ⟨h, h⟩'],
    ['theorem g (p q : Prop) (h : p) : p ∧ q := by', 'exact ⟨h⟩'],
    ['theorem h (p : Prop) : p := by', 'exact h'],
    ['theorem i (p : Prop) : p := by', 'exact ?_'],
    ['theorem j (p : Prop) : p := by', 'sorry'],
    ['theorem k (p : Prop) : p := by', 'apply False.elim', 'trivial'],
    ['theorem l (p q : Prop) (h : p) (k : q) : p ↔ q := by', 'exact ⟨h, k⟩'],
    ['theorem m (x : ℤ) : 2 * x = x := by', 'ring'],
    ['theorem n (x : ℤ) (h : x < 3) : x < 2 := by', 'omega'],
    ['theorem o (x y : ℤ) (h : x * y < 3) : x < 3 := by', 'linarith'],
    ['theorem p1 (a b : ℕ) : a - b + b = a := by', 'omega'],
    ['theorem q1 (a b : ℕ) : a - b + b = a := by', 'ring'],
    ['theorem r1 (x : ℤ) : 0 ≤ x := by', 'omega'],
    ['theorem s1 (x : ℤ) (h : x ≠ 0) : 0 < x := by', 'omega'],
    ['theorem t1 : (2 : ℤ) - 3 = 0 := by', 'norm_num'],
    ['theorem u1 : 1 = 2 := by', 'norm_num'],
    ['theorem v1 : 9 ^ 64 ^ 2 = 0 := by', 'norm_num'],
    ['theorem w1 (a b : ℕ) (h : a = b) : a = a + b := by', 'rw [h]', 'rfl'],
    ['theorem w2 (x y : ℤ) (h : 2 = y) : x ^ 2 = 1 := by', 'rw [h]', 'ring'],
    ['theorem x1 (p q : Prop) (h : p → q) (k : p → q) : q := by', 'apply h', 'exact k'],
    ['theorem y1 (p q : Prop) (h : p ∨ q) : p ∧ q := by', 'rcases h with ⟨a, b⟩', 'exact ⟨a, b⟩'],
    ['theorem z1 (p : Prop) (h : ¬¬p) : ¬p := by', 'exact h'],
    ['theorem z2 : (2 - 3 = 0 ∧ (1 : ℤ) = 1) → ((2 : ℤ) - 3 = 0 ∧ 1 = 1) := by', 'intro h', 'exact h'],
  ];
  for (const [statement, ...tactics] of wrong) {
    if (/\^ 64 \^ 2/.test(statement)) {
      t.throws(() => readStatement(statement), { name: 'LeanError' });
      continue;
    }
    const { status } = await verdict(statement, ...tactics);
    t.equal(status, 'rejected', statement);
  }
  for (const name of ['constructor', 'toString', '__proto__', 'hasOwnProperty']) {
    const { status } = await verdict('theorem a (p : Prop) : p := by', name);
    t.equal(status, 'rejected', name);
  }
});

/** A random formula over p, q, r. */
function randomFormula(rng: Random, depth: number): string {
  if (depth === 0 || rng.chance(0.2)) return rng.choice(['p', 'q', 'r', 'p', 'q', 'False', 'True']);
  const inner = () => randomFormula(rng, depth - 1);
  const shape = rng.integer(5);
  if (shape === 0) return `(¬${inner()})`;
  return `(${inner()} ${['∧', '∨', '→', '↔'][shape - 1]} ${inner()})`;
}

function isValid({ hypotheses, target }: Goal): boolean {
  const names = ['p', 'q', 'r'].map(name => keyOf({ kind: 'atom', name }));
  for (let row = 0; row < 8; row++) {
    const isTrue = (atom: Formula) => ((row >> names.indexOf(keyOf(atom))) & 1) === 1;
    const known = hypotheses.every(({ formula }) => evaluateTruth(formula, isTrue));
    if (known && !evaluateTruth(target, isTrue)) return false;
  }
  return true;
}

const MOVES = [
  'intro a', 'intro b', 'constructor', 'left', 'right', 'exfalso', 'assumption', 'contradiction', 'trivial', 'rfl',
  'cases h', 'cases a', 'cases b', 'cases k', "cases' h with a b", 'rcases h with ⟨a, b⟩', 'rcases k with a | b', 'obtain ⟨x, y⟩ := a',
  'apply h', 'apply a', 'apply k', 'exact h', 'exact a', 'exact h.1', 'exact h a', 'exact a b', 'exact ⟨a, b⟩', 'exact Or.inl a', 'refine ⟨?_, ?_⟩',
  'refine fun x => ?_', 'by_contra k', 'by_cases k : p', 'by_cases a : q', 'have k : p → q', 'have b := h.1', 'have b := h a', 'apply False.elim',
  'exact absurd a b', 'exact False.elim a', 'tauto', 'norm_num', 'omega', 'clear h', 'exact fun x => x', 'exact id h', 'exact h.mp a', 'apply Or.inr',
]; // biome-ignore format: a list reads better in rows

t.test('no play of random tactics ever proves a formula that truth tables refute', async t => {
  const rng = Random.fromSeed(99);
  let refuted = 0;
  let proved = 0;
  for (let count = 0; count < 600; count++) {
    const [first, second, target] = [1, 1, 2].map(depth => randomFormula(rng, depth));
    const start = readStatement(`theorem x (p q r : Prop) (h : ${first}) (k : ${second}) : ${target} := by`);
    const valid = isValid(start);
    if (!valid) refuted++;
    let goals: Goal[] = [start];
    for (let step = 0; step < 40 && goals.length > 0; step++) {
      try {
        const next = applyTactic(goals, rng.choice(MOVES), 'all');
        if (!valid && next.every(isValid))
          t.fail(`${show(start.target)} is refuted, what is left of it is not`);
        goals = next;
      } catch (error) {
        if ((error as Error).name !== 'LeanError') throw error;
      }
    }
    if (goals.length === 0) {
      proved++;
      if (!valid) t.fail(`proved ${first}, ${second} ⊢ ${target}`);
    }
  }
  t.ok(refuted > 150 && proved > 80, `${refuted} refuted, ${proved} proved`);
});

t.test('linear arithmetic and polynomial identities never go beyond what numbers say', async t => {
  const rng = Random.fromSeed(17);
  const term = () =>
    `${rng.choice(['', '-', '2 * ', '3 * '])}${rng.choice(['x', 'y', '(x + y)', '(x - 2 * y)', 'x * y'])} ${rng.choice(['+', '-'])} ${rng.integer(4)}`;
  const relation = () => `${term()} ${rng.choice(['=', '<', '≤', '≠'])} ${rng.choice(['0', term()])}`;
  let followed = 0;
  for (let count = 0; count < 1200; count++) {
    const sort = rng.choice(['ℤ', 'ℕ']);
    const texts = [relation(), relation(), relation()].map(text =>
      sort === 'ℕ' ? text.replaceAll(/(^| )-(?=\w|\()/g, '$1') : text,
    );
    const goal = readStatement(
      `theorem x (x y : ${sort}) (h : ${texts[0]}) (k : ${texts[1]}) : ${texts[2]} := by`,
    );
    const known = goal.hypotheses.map(hypothesis => hypothesis.formula);
    const follows = followsLinearly(known, goal.target);
    const identical = isIdentity(goal.target);
    if (!follows && !identical) continue;
    followed++;
    for (let x = sort === 'ℕ' ? 0 : -7; x <= 7; x++) {
      for (let y = sort === 'ℕ' ? 0 : -7; y <= 7; y++) {
        const holds = (formula: Formula) => truthAt(formula, x, y, sort === 'ℕ');
        if (identical && !holds(goal.target)) t.fail(`${texts[2]} is no identity at ${x}, ${y}`);
        if (follows && known.every(holds) && !holds(goal.target))
          t.fail(`${texts.join('; ')} fails at ${x}, ${y} in ${sort}`);
      }
    }
  }
  t.ok(followed > 60, `${followed} followed`);
});

/** The truth of a relation or negated relation at a point, computed apart from the checker. */
function truthAt(formula: Formula, x: number, y: number, natural: boolean): boolean {
  if (formula.kind === 'implies') return !truthAt(formula.left, x, y, natural);
  if (formula.kind !== 'relation') throw new Error(`unexpected ${formula.kind}`);
  type Part = typeof formula.left;
  const value = (part: Part): number => {
    if (part.kind === 'number') return Number(part.value);
    if (part.kind === 'variable') return part.name === 'x' ? x : y;
    if (part.kind === 'negation') return -value(part.of);
    const [left, right] = [value(part.left), value(part.right)];
    if (part.operator === '+') return left + right;
    if (part.operator === '*') return left * right;
    return natural ? Math.max(left - right, 0) : left - right;
  };
  const [left, right] = [value(formula.left), value(formula.right)];
  return { '=': left === right, '<': left < right, '≤': left <= right }[formula.relation];
}

const ARITHMETIC_MOVES = [
  'intro a', 'constructor', 'left', 'right', 'exfalso', 'assumption', 'contradiction', 'trivial', 'rfl', 'norm_num', 'decide',
  'ring', 'omega', 'linarith', 'tauto', 'rw [h]', 'rw [k]', 'rw [← h]', 'rw [← k]', 'rw [h, k]', 'rw [a]', 'by_contra a', 'cases h',
  'cases k', 'have a : x = y', 'have a : 0 ≤ x * y', 'by_cases a : x < y', 'by_cases h : y = 2', 'apply h', 'exact h', 'exact k', 'exact h.1',
  'exact ⟨h, k⟩', 'rcases h with h | k', 'rcases k with ⟨h, k⟩', 'exact absurd h k', 'clear h', 'apply k', 'exact fun a => a',
]; // biome-ignore format: a list reads better in rows

/** A formula of relations between x and y, with every operation that the checker reads. */
function randomArithmetic(rng: Random, sort: string, depth: number): string {
  if (depth > 0 && rng.chance(0.4)) {
    const inner = () => randomArithmetic(rng, sort, depth - 1);
    return rng.chance(0.2) ? `(¬${inner()})` : `(${inner()} ${rng.choice(['∧', '∨', '→', '↔'])} ${inner()})`;
  }
  const term = (deep: number): string => {
    if (deep === 0 || rng.chance(0.3))
      return rng.choice(['x', 'y', 'x', 'y', ...['0', '1', '2', '3'].map(digit => `(${digit} : ${sort})`)]);
    if (sort === 'ℤ' && rng.chance(0.1)) return `(-${term(deep - 1)})`;
    if (rng.chance(0.15)) return `${rng.choice(['x', 'y', '(x + y)'])} ^ ${rng.integer(4)}`;
    return `(${term(deep - 1)} ${rng.choice(['+', '-', '*', '/', '%'])} ${term(deep - 1)})`;
  };
  return `${term(2)} ${rng.choice(['=', '=', '=', '<', '≤', '≠', '>'])} ${term(1)}`;
}

t.test('no play of random tactics ever proves a claim about numbers that some numbers refute', async t => {
  const rng = Random.fromSeed(5);
  let refuted = 0;
  let proved = 0;
  for (let count = 0; count < 800; count++) {
    const sort = rng.choice(['ℤ', 'ℕ']);
    const [h, k, target] = [1, 0, 1].map(depth => randomArithmetic(rng, sort, depth));
    const statement = `theorem x (x y : ${sort}) (h : ${h}) (k : ${k}) : ${target} := by`;
    const start = readStatement(statement);
    const refutation = points(sort).find(([x, y]) => !holdsAt(start, x, y));
    if (refutation) refuted++;
    let goals: Goal[] = [start];
    for (let step = 0; step < 25 && goals.length > 0; step++) {
      const move = rng.choice(ARITHMETIC_MOVES);
      let next: Goal[];
      try {
        next = applyTactic(goals, move, 'all');
      } catch (error) {
        if ((error as Error).name !== 'LeanError') throw error;
        continue;
      }
      if (refutation && next.every(goal => holdsAt(goal, ...refutation))) {
        t.fail(`${statement} fails at ${refutation}; after ${move} nothing that is left does`);
        break;
      }
      goals = next;
    }
    if (goals.length === 0) proved++;
  }
  t.ok(refuted > 200 && proved > 50, `${refuted} refuted, ${proved} proved`);
});

function points(sort: string): [bigint, bigint][] {
  const range = Array.from({ length: 9 }, (_, at) => BigInt(sort === 'ℕ' ? at : at - 4));
  return range.flatMap(x => range.map((y): [bigint, bigint] => [x, y]));
}

/** Whether a goal holds for x and y, computed apart from the checker. */
function holdsAt({ hypotheses, target }: Goal, x: bigint, y: bigint): boolean {
  return !hypotheses.every(({ formula }) => isTrueAt(formula, x, y)) || isTrueAt(target, x, y);
}

function isTrueAt(formula: Formula, x: bigint, y: bigint): boolean {
  if (formula.kind === 'true' || formula.kind === 'false') return formula.kind === 'true';
  if (formula.kind === 'atom') throw new Error(`unexpected atom ${formula.name}`);
  if (formula.kind !== 'relation') {
    const [left, right] = [isTrueAt(formula.left, x, y), isTrueAt(formula.right, x, y)];
    return { and: left && right, or: left || right, implies: !left || right, iff: left === right }[
      formula.kind
    ];
  }
  type Part = typeof formula.left;
  const floorDivide = (a: bigint, b: bigint): bigint => a / b - (a % b < 0n ? 1n : 0n);
  const value = (part: Part): bigint => {
    if (part.kind === 'number') return part.value;
    if (part.kind === 'variable') return part.name === 'x' ? x : y;
    if (part.kind === 'negation') return -value(part.of);
    const [left, right] = [value(part.left), value(part.right)];
    // Lean rounds so that the rest is not negative: down for positive divisors, up for negative ones.
    const quotient = right === 0n ? 0n : right > 0n ? floorDivide(left, right) : -floorDivide(left, -right);
    switch (part.operator) {
      case '+':
        return left + right;
      case '-':
        return formula.sort === 'ℕ' && left < right ? 0n : left - right;
      case '*':
        return left * right;
      case '/':
        return quotient;
      case '%':
        return left - right * quotient;
      case '^':
        return left ** right;
    }
  };
  const [left, right] = [value(formula.left), value(formula.right)];
  return { '=': left === right, '<': left < right, '≤': left <= right }[formula.relation];
}
