import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { drawTheorem } from '../theorems.ts';
import { applyTactic, builtinBackend } from './builtin.ts';
import { type Formula, type Goal, Reader, readFormula, readStatement, show, tokenize } from './parser.ts';

async function verdict(statement: string, ...tactics: string[]) {
  const theorem = { name: '', informal: '', header: '', statement, proof: [] };
  return builtinBackend.check(theorem, tactics);
}

t.test('every generated theorem is proved by the proof that comes with it, step by step', async t => {
  const schemes = new Set<string>();
  for (let seed = 0; seed < 400; seed++) {
    const theorem = drawTheorem('logic', 'any', Random.fromSeed(seed));
    schemes.add(theorem.name);
    for (let count = 1; count <= theorem.proof.length; count++) {
      const proof = theorem.proof.slice(0, count);
      const { status, messages } = await builtinBackend.check(theorem, proof);
      const wanted = count === theorem.proof.length ? 'proved' : 'accepted';
      if (status !== wanted) t.fail(`${theorem.statement} ${proof}: ${status} ${messages}`);
    }
  }
  t.ok(schemes.size >= 26, `${schemes.size} schemes`);
});

t.test('formulas are read with Lean’s precedences and shown again', async t => {
  const atoms = new Set(['p', 'q', 'r']);
  const read = (text: string) => {
    const reader = new Reader(tokenize(text));
    const formula = readFormula(reader, atoms);
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
    ['x > y', 'y < x'],
  ];
  for (const [text, wanted] of same.slice(0, -1)) t.equal(read(text), wanted);
  for (const text of ['p ∧', 'p q', 'z', 'p + 1', 'x ∧ p', '(p', 'p $ q', '2 = 2'])
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
    ['theorem x1 (p q : Prop) (h : p → q) (k : p → q) : q := by', 'apply h', 'exact k'],
    ['theorem y1 (p q : Prop) (h : p ∨ q) : p ∧ q := by', 'rcases h with ⟨a, b⟩', 'exact ⟨a, b⟩'],
    ['theorem z1 (p : Prop) (h : ¬¬p) : ¬p := by', 'exact h'],
  ];
  for (const [statement, ...tactics] of wrong) {
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

function holds(formula: Formula, row: number): boolean {
  switch (formula.kind) {
    case 'true':
      return true;
    case 'false':
      return false;
    case 'atom':
      return ((row >> 'pqr'.indexOf(formula.name)) & 1) === 1;
    case 'and':
      return holds(formula.left, row) && holds(formula.right, row);
    case 'or':
      return holds(formula.left, row) || holds(formula.right, row);
    case 'implies':
      return !holds(formula.left, row) || holds(formula.right, row);
    case 'iff':
      return holds(formula.left, row) === holds(formula.right, row);
  }
}

function isValid({ hypotheses, target }: Goal): boolean {
  return Array.from({ length: 8 }, (_, row) => row).every(
    row => holds(target, row) || hypotheses.some(({ formula }) => !holds(formula, row)),
  );
}

const MOVES = [
  'intro a', 'intro b', 'constructor', 'left', 'right', 'exfalso', 'assumption', 'contradiction', 'trivial', 'rfl',
  'cases h', 'cases a', 'cases b', 'cases k', "cases' h with a b", 'rcases h with ⟨a, b⟩', 'rcases k with a | b', 'obtain ⟨x, y⟩ := a',
  'apply h', 'apply a', 'apply k', 'exact h', 'exact a', 'exact h.1', 'exact h a', 'exact a b', 'exact ⟨a, b⟩', 'exact Or.inl a', 'refine ⟨?_, ?_⟩',
  'refine fun x => ?_', 'by_contra k', 'by_cases k : p', 'by_cases a : q', 'have k : p → q', 'have b := h.1', 'have b := h a', 'apply False.elim',
  'exact absurd a b', 'exact False.elim a', 'clear h', 'exact fun x => x', 'exact id h', 'exact h.mp a', 'apply Or.inr',
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
        const next = applyTactic(goals, rng.choice(MOVES));
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
  t.ok(refuted > 150 && proved > 40, `${refuted} refuted, ${proved} proved`);
});
