import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { LEAN_VARIABLE } from '../variables.ts';
import { axiomsCommand, type LeanMessage, sourceOf, verdictOf, verdictOnAxioms } from './backend.ts';
import { readStatement } from './builtin/parser.ts';
import { type LeanState, lean, leanV0 } from './lean.ts';
import { REPL_COMMAND_VARIABLE, ReplProcess, stopRepls } from './repl.ts';
import { openStatement, readTheorem } from './theorems.ts';

t.setTimeout(300_000);

/** These tests play without Lean. */
const before = process.env[LEAN_VARIABLE];
process.env[LEAN_VARIABLE] = '/nowhere/lean';
t.teardown(() => {
  if (before === undefined) delete process.env[LEAN_VARIABLE];
  else process.env[LEAN_VARIABLE] = before;
});

/** With RAGEN's rewards, which tell verdicts apart. */
const play = playing(leanV0);
const STATEMENT = 'theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by';

const close = (a: number, b: number) => Math.abs(a - b) < 1e-9;

t.test('RAGEN pays for accepted, rejected and proved', async t => {
  let state = await play.reset({}, { statement: STATEMENT });
  t.equal(
    play.text(state),
    `The built-in checker knows propositional logic only.\nSteps: 0 of 100\n${STATEMENT}\nh : p ∧ q\n⊢ q ∧ p`,
  );
  const steps: [string, number, boolean, boolean][] = [
    ['constructor', 0.9, true, false],
    ['exact h.1', -1.1, false, false],
    ['', -1.1, false, false],
    ['exact h.2', 0.9, true, false],
    ['exact h.1', 10.9, true, true],
  ];
  for (const [tactic, reward, accepted, proved] of steps) {
    const result = await play.step(state, tactic);
    t.ok(close(result.reward, reward), `${tactic} pays ${result.reward}`);
    t.match(result, { terminated: proved, info: { success: proved, action_is_valid: accepted } });
    state = result.state;
  }
  t.match(
    play.text(state),
    /1\. constructor\n2\. exact h\.2\n3\. exact h\.1\nThe last tactic was accepted and proves/,
  );
  t.match(await play.step(state, 'trivial'), { reward: 0, terminated: true });
});

/** Tactics that Lean accepts for nothing, and what they are said of. */
const NO_OPS = [
  'have : True := trivial',
  'have k : True := True.intro',
  'by_cases k : True',
  'refine ?_',
  ...['h', 'h2', 'k', 'a', 'this'].flatMap(name => [
    `have ${name} := ${name}`,
    `have again := ${name}`,
    `have again := ${name}.1`,
    `have again := ${name}.mp`,
    `rcases ${name} with again`,
    `obtain again := ${name}`,
  ]),
];

t.test('a tactic that leads nowhere never pays: every theorem returns most for its proof', async t => {
  const play = playing(lean);
  const met = new Map<string, LeanState>();
  for (let seed = 0; seed < 400; seed++) {
    const state = await play.reset({}, {}, seed);
    met.set(state.theorem.name, state);
  }
  t.equal(met.size, 26, 'every scheme is met');
  let accepted = 0;
  for (const [name, start] of met) {
    let proved = 0;
    let end = start;
    for (const tactic of start.theorem.proof) {
      const result = await play.step(end, tactic);
      proved += result.reward;
      end = result.state;
    }
    for (const tactic of NO_OPS) {
      let state = start;
      let returned = 0;
      for (let step = 0; step < 20; step++) {
        const result = await play.step(state, tactic);
        if (result.info.success) break;
        if (result.info.action_is_valid) accepted++;
        returned += result.reward;
        state = result.state;
        if (returned >= proved) break;
      }
      if (returned >= proved) t.fail(`${tactic} returns ${returned} for ${name}, its proof ${proved}`);
    }
  }
  t.ok(accepted > 2000, `${accepted} such tactics were accepted`);
});

t.test('open goals stay visible after a rejected tactic', async t => {
  const start = await play.reset({}, { statement: STATEMENT });
  const wrong = (await play.step(start, 'left')).state;
  t.match(play.text(wrong), /was rejected\.\n.+\nLeft to prove:\nh : p ∧ q\n⊢ q ∧ p$/);
  const begun = (await play.step(wrong, 'constructor')).state;
  const again = (await play.step(begun, '')).state;
  t.match(
    play.text(again),
    /an empty tactic is not allowed\nLeft to prove:\nunsolved goals: 2\nh : p ∧ q\n⊢ q/,
  );
  t.same(lean.observe(again, 'structured'), {
    ...(lean.observe(again, 'structured') as object),
    goals: begun.goals,
  });
});

t.test('a session that was stored without goals shows those of its feedback', async t => {
  const { goals: _, ...stored } = await play.reset({}, { statement: STATEMENT });
  t.match(lean.observe(stored, 'structured'), { goals: ['h : p ∧ q\n⊢ q ∧ p'] });
  const wrong = (await play.step(stored, 'left')).state;
  t.match(play.text(wrong), /was rejected\.\n.+\nLeft to prove:\nh : p ∧ q\n⊢ q ∧ p$/);
  const { goals: __, ...rejected } = wrong;
  t.match(lean.observe(rejected, 'structured'), { goals: [] });
});

t.test('the cap costs 2 and cuts the episode', async t => {
  const state = await play.reset({ max_steps: 2 }, { statement: STATEMENT });
  const first = await play.step(state, 'left');
  const second = await play.step(first.state, 'left');
  t.ok(close(second.reward, -3.1));
  t.match([first.truncated, second.truncated, second.terminated], [false, true, false]);
  t.match(await play.step(second.state, 'left'), { reward: 0, truncated: true });
});

t.test('the oracle proves generated theorems; splits do not meet', async t => {
  const seen = new Map<string, string>();
  for (const split of ['train', 'validation', 'test']) {
    for (let seed = 0; seed < 25; seed++) {
      const state = await play.reset({ split }, {}, seed);
      t.equal(seen.get(state.theorem.statement) ?? split, split);
      seen.set(state.theorem.statement, split);
      t.match(await play.finish(state, 'oracle', 20), { success: true });
    }
  }
});

t.test('without Lean only logic is played, and every reply says so', async t => {
  for (const topic of ['arithmetic', 'mixed']) {
    for (const backend of ['auto', 'builtin'])
      await t.rejects(async () => play.reset({ topic, backend }), {
        name: 'InvalidConfig',
        pointer: '/topic',
        message: /need Lean/,
      });
  }
  await t.rejects(async () => play.reset({ backend: 'lean' }), {
    name: 'InvalidConfig',
    pointer: '/backend',
    message: /nowhere/,
  });
  const state = await play.reset({});
  t.match(lean.observe(state, 'structured'), { checker: 'builtin' });
  t.match(await play.step(state, 'omega'), {
    info: { checker: 'builtin', messages: ["unknown tactic 'omega'"] },
  });
  t.match(await play.finish(state, 'oracle', 20), { success: true });
  t.match(await lean.condition?.(), { summary: /^The built-in checker knows propositional logic only/ });
});

t.test('a long statement is read at once', async t => {
  const began = performance.now();
  for (const gap of [' '.repeat(100_000), ':='.repeat(50_000), ':= by'.repeat(20_000)]) {
    t.match(openStatement(`theorem x : True :=${gap}x`), /x := by$/);
    t.throws(() => readStatement(`theorem x : True :=${gap}x`), { name: 'LeanError' });
  }
  t.ok(performance.now() - began < 2000);
  t.equal(openStatement('theorem x : a := by\n  sorry '), 'theorem x : a := by');
  t.equal(openStatement('theorem x (h : a := b) : c'), 'theorem x (h : a := b) : c := by');
});

t.test('the former names of the built-in checker still work', async t => {
  const play = playing(leanV0);
  const [former, present] = [{ backend: 'builtin' }, { backend: 'imitation' }];
  const states = [await play.reset(former), await play.reset(present)];
  t.same(states[0].theorem, states[1].theorem);
  t.match(states[0].feedback, states[1].feedback);
});

t.test('miniF2F records are read, and refused by the built-in checker, which knows too little', async t => {
  const record = {
    name: 'mathd_1',
    split: 'valid',
    informal_prefix: '/-- easy -/',
    formal_statement: 'theorem mathd_1 (x : ℝ) (h₀ : 2 * x = 4) : x = 2 := by\n  sorry',
    header: 'import Mathlib',
  };
  t.same(readTheorem(record), {
    name: 'mathd_1',
    informal: '/-- easy -/',
    header: 'import Mathlib',
    statement: 'theorem mathd_1 (x : ℝ) (h₀ : 2 * x = 4) : x = 2 := by',
    proof: [],
  });
  t.throws(() => readTheorem({ formal_statement: 'def x := 1' }), {
    name: 'InvalidField',
    field: 'formal_statement',
  });
  const folder = t.testdir({ 'data.jsonl': JSON.stringify(record), 'bad.jsonl': '{"name":"x"}' });
  await t.rejects(play.reset({ data: join(folder, 'data.jsonl') }), {
    name: 'InvalidConfig',
    pointer: '/backend',
  });
  await t.rejects(play.reset({ data: join(folder, 'bad.jsonl') }), {
    message: /row 1: field formal_statement/,
  });
  await t.rejects(play.reset({}, { statement: 'theorem x : ∀ y, y = y := by' }), {
    name: 'InvalidOptions',
    pointer: '/statement',
  });
});

/** Starts a server that speaks Kimina's protocol; returns its address and the requests it got. */
async function kimina(reply: (code: string) => unknown, status = 200) {
  const requests: { url?: string; body: { snippets: { id: string; code: string }[]; timeout: number } }[] =
    [];
  const { url } = await serveHttp(t, (request, response, text) => {
    const body = JSON.parse(text);
    requests.push({ url: request.url, body });
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(JSON.stringify(reply(body.snippets[0].code)));
  });
  return { server_url: `${url}/`, requests };
}

t.test('a Kimina server checks the whole proof', async t => {
  const { server_url, requests } = await kimina(code => ({
    results: [
      {
        id: 'x',
        time: 0.1,
        error: code.includes('slow') ? 'Lean REPL command timed out in 5 seconds' : null,
        response: code.includes('odd')
          ? { message: 'unknown environment' }
          : {
              env: 0,
              messages: code.includes('bad')
                ? [{ severity: 'error', data: "unknown tactic 'bad'" }]
                : code.includes('rfl')
                  ? [
                      { severity: 'warning', data: 'unused variable' },
                      ...(code.includes('#print axioms _root_.t')
                        ? [
                            {
                              severity: 'info',
                              data: `'t' depends on axioms: [${code.includes('hidden') ? 'sorryAx' : 'propext'}]`,
                            },
                          ]
                        : []),
                    ]
                  : [
                      {
                        severity: 'error',
                        pos: { line: code.includes('within') ? 4 : 3 },
                        data: 'unsolved goals\n⊢ True',
                      },
                    ],
            },
      },
    ],
  }));
  const config = { backend: 'kimina', server_url, header: 'import Mathlib', timeout_ms: 60_000 };
  let state = await play.reset(config, { statement: 'theorem t : 1 = 1 := by sorry' });
  const steps: [string, number, string][] = [
    ['bad', -1.1, 'rejected'],
    ['slow', -1.1, 'timeout'],
    ['odd', -1.1, 'rejected'],
    ['sorry', -1.1, 'rejected'],
    ['trivial theorem x : False', -1.1, 'rejected'],
    ['#eval 1', -1.1, 'rejected'],
    ['exact sorryAx _', -1.1, 'rejected'],
    ['rfl namespace a inductive t', -1.1, 'rejected'],
    ['rfl run_meta IO.println 1', -1.1, 'rejected'],
    ['set_option warn.sorry false in rfl', -1.1, 'rejected'],
    ['rfl hidden', -1.1, 'rejected'],
    ['have : False := by skip -- within', -1.1, 'rejected'],
    ['skip', 0.9, 'accepted'],
    ['rfl', 10.9, 'proved'],
  ];
  for (const [tactic, reward, status] of steps) {
    const result = await play.step(state, tactic);
    t.ok(close(result.reward, reward), `${tactic} pays ${result.reward}`);
    t.equal(result.info.status, status);
    state = result.state;
  }
  t.equal(requests.length, 9, 'what is not a tactic is not sent; what is proved is asked about twice');
  t.match(requests.at(-1), {
    url: '/api/check',
    body: {
      timeout: 60,
      snippets: [
        { code: 'import Mathlib\n\ntheorem t : 1 = 1 := by\n  skip\n  rfl\n\n#print axioms _root_.t\n' },
      ],
    },
  });
});

t.test('a Kimina server that fails is a fault, not a verdict', async t => {
  for (const [reply, status] of [
    [{}, 200],
    [{ results: [] }, 200],
    [{ results: [{ id: 'x' }] }, 200],
    [{}, 500],
  ] as const) {
    const { server_url } = await kimina(() => reply, status);
    const state = await play.reset({ backend: 'kimina', server_url }, { statement: STATEMENT });
    await t.rejects(play.step(state, 'constructor'), { name: 'BackendFailed' });
  }
  const { server_url } = await kimina(() => 'x'.repeat(17 * 2 ** 20));
  const state = await play.reset({ backend: 'kimina', server_url }, { statement: STATEMENT });
  await t.rejects(play.step(state, 'constructor'), { message: /^the Lean server sent too much: / });
  const wrong: JsonObject[] = [
    { backend: 'kimina' },
    { backend: 'kimina', server_url: 'http://lean.example.org' },
    { server_url: 'http://127.0.0.1:1' },
  ];
  for (const config of wrong)
    await t.rejects(async () => play.reset(config), { name: 'InvalidConfig', pointer: '/server_url' });
});

/** Speaks the REPL's protocol: JSON and an empty line each way. */
const FAKE_REPL = `
let buffer = '';
let count = 0;
let last = '';
process.stdin.on('data', chunk => {
  buffer += chunk;
  for (let end = buffer.indexOf('\\n\\n'); end >= 0; end = buffer.indexOf('\\n\\n')) {
    const { cmd, env } = JSON.parse(buffer.slice(0, end));
    buffer = buffer.slice(end + 2);
    if (cmd.includes('hang')) continue;
    if (cmd.includes('die')) process.exit(3);
    if (cmd.includes('garbage')) { process.stdout.write('not json\\n\\n'); continue; }
    const messages = [{ severity: 'info', data: 'env ' + env + ' pid ' + process.pid }];
    if (cmd === '#print axioms _root_.t') {
      const data = "'t' " + (last.includes('hidden') ? 'depends on axioms: [propext,\\n sorryAx]' : 'does not depend on any axioms');
      process.stdout.write(JSON.stringify({ env, messages: [{ severity: 'info', data }] }) + '\\n\\n');
      continue;
    }
    last = cmd;
    if (cmd.includes('bad')) messages.push({ severity: 'error', data: 'no' });
    else if (!cmd.includes('rfl') && !cmd.includes('import')) messages.push({ severity: 'error', pos: { line: cmd.includes('within') ? 2 : 1 }, data: 'unsolved goals' });
    const text = JSON.stringify({ env: count++, messages, sorries: cmd.includes('cheat') ? [{}] : undefined }, null, 1);
    process.stdout.write(text.slice(0, 5));
    setTimeout(() => process.stdout.write(text.slice(5) + '\\n\\n'), 2);
  }
});
`;

t.test('a REPL process checks one proof after the other and restarts when it hangs or dies', async t => {
  const file = join(t.testdir({}), 'repl.mjs');
  writeFileSync(file, FAKE_REPL);
  const repl = new ReplProcess([process.execPath, file]);
  t.teardown(() => repl.stop());
  const theorem = {
    name: 't',
    informal: '',
    header: 'import X',
    statement: 'theorem t : 1 = 1 := by',
    proof: [],
  };
  const verdicts = await Promise.all(
    [['skip'], ['rfl'], ['bad'], ['cheat rfl'], ['rfl hidden'], ['have h := by within']].map(tactics =>
      repl.check(theorem, tactics, 5000),
    ),
  );
  t.same(
    verdicts.map(verdict => verdict.status),
    ['accepted', 'proved', 'rejected', 'rejected', 'rejected', 'rejected'],
  );
  t.match(verdicts[1].messages[0], /^env 0 pid/, 'the header is read once');
  t.same(verdicts[4].messages, ['the proof rests on sorryAx']);
  t.match(await repl.check(theorem, ['hang'], 200), { status: 'timeout' });
  const after = await repl.check(theorem, ['rfl'], 5000);
  t.equal(after.status, 'proved');
  t.not(after.messages[0], verdicts[1].messages[0], 'another process');
  await t.rejects(repl.check(theorem, ['die'], 5000), {
    name: 'BackendFailed',
    message: /ended with code 3/,
  });
  await t.rejects(repl.check(theorem, ['garbage'], 5000), { name: 'BackendFailed' });
  t.match(await repl.check({ ...theorem, header: '' }, ['rfl'], 5000), { messages: [/^env undefined/] });
  const missing = new ReplProcess(['/nowhere/lean']);
  await t.rejects(missing.check(theorem, ['rfl'], 5000), {
    name: 'BackendFailed',
    message: /does not start/,
  });
});

t.test('only goals of the theorem itself may be left over', async t => {
  const theorem = {
    name: 't',
    informal: '',
    header: 'import A\nopen B',
    statement: 'theorem t\n  (p : Prop) : p := by',
    proof: [],
  };
  const left = (line?: number) => ({
    severity: 'error',
    data: 'unsolved goals\np : Prop\n⊢ p',
    ...(line !== undefined && { pos: { line } }),
  });
  const status = (...messages: LeanMessage[]) => verdictOf(theorem, messages, []).status;
  t.equal(status(left(5)), 'accepted', 'the statement ends in line 5');
  t.equal(status(left(6)), 'rejected', 'a proof within the first tactic');
  t.equal(status(left(5), left(6)), 'rejected');
  t.equal(status(left()), 'rejected', 'it may be anywhere');
  t.equal(status({ ...left(5), data: 'linarith failed\nunsolved goals' }), 'rejected');
  t.equal(status(), 'proved');
});

t.test('a proof rests on nothing but the axioms of Lean’s own logic', async t => {
  const proved = { status: 'proved', messages: [] } as const;
  const verdict = (data: string) => verdictOnAxioms(proved, [{ severity: 'info', data }]);
  t.equal(verdict("'x' does not depend on any axioms"), proved);
  t.equal(verdict("'x' depends on axioms: [propext, Classical.choice, Quot.sound]"), proved);
  t.same(verdict("'x' depends on axioms: [propext, Lean.ofReduceBool]"), {
    status: 'rejected',
    messages: ['the proof rests on Lean.ofReduceBool'],
  });
  t.equal(verdict('unknown constant').status, 'rejected');
  const named = (statement: string, header = '') => axiomsCommand({ header, statement });
  t.equal(named('theorem Foo.bar₁ (x : ℕ) : x = x := by'), '#print axioms _root_.Foo.bar₁');
  t.equal(named('@[simp]\nlemma h{x : ℕ} : x = x := by'), '#print axioms _root_.h');
  t.equal(named('example : 1 = 1 := by'), '#print axioms _root_.the_example');
  const header = 'import Mathlib\nnamespace A\nsection s\nnamespace B\nend B\nend s\nnamespace C.D';
  t.equal(named('example : 1 = 1 := by', header), '#print axioms _root_.A.C.D.the_example');
  const theorem = { name: '', informal: '', header: '', statement: 'example : 1 = 1 := by', proof: [] };
  t.equal(sourceOf(theorem, ['rfl']), 'theorem the_example : 1 = 1 := by\n  rfl\n');
});

t.test('the REPL is set up by the operator', async t => {
  await t.rejects(async () => play.reset({ backend: 'repl' }), {
    name: 'InvalidConfig',
    pointer: '/backend',
  });
  const file = join(t.testdir({}), 'repl.mjs');
  writeFileSync(file, FAKE_REPL);
  process.env[REPL_COMMAND_VARIABLE] = `${process.execPath} ${file}`;
  t.teardown(() => {
    delete process.env[REPL_COMMAND_VARIABLE];
    stopRepls();
  });
  const state = await play.reset({ backend: 'repl' }, { statement: 'theorem t : 1 = 1 := by' });
  t.match(await play.step(state, 'rfl'), { terminated: true, info: { success: true } });
});

const MINIF2F = process.env.RAGEN_TEST_MINIF2F ?? '';

t.test(
  'miniF2F’s problems are a set of tasks',
  {
    skip: MINIF2F === '' && 'RAGEN_TEST_MINIF2F names no file',
  },
  async t => {
    const { server_url } = await kimina(() => ({ results: [] }));
    const config = { backend: 'kimina', server_url, data: MINIF2F, split: 'any' };
    const names = new Set<string>();
    for (let index = 0; index < 244; index++) {
      const { theorem } = await play.reset(config, { index });
      names.add(theorem.name);
      t.match(theorem.statement, /^theorem .* := by$/s);
      t.match(theorem.header, /^import Mathlib/);
      t.equal(sourceOf(theorem, ['simp']).split('sorry').length, 1);
    }
    t.equal(names.size, 244);
    await t.rejects(play.reset(config, { index: 244 }), { name: 'InvalidOptions', pointer: '/index' });
  },
);

t.test('keeps the contract', async t => {
  await checkContract(t, lean);
  await checkContract(t, leanV0);
});
