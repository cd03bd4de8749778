import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import t from 'tap';
import { listenLocally } from '../../../../test/local-server.test-data.ts';
import { findIsolation, sandboxCommand } from './isolation.ts';
import { SandboxPool } from './pool.ts';
import { asText, type Job, Sandbox, SandboxFailed } from './sandbox.ts';

/** Programs that try to get out; every one must end as a failed test within its limits, the sandbox unharmed. */

const isolation = await findIsolation().catch((error: unknown) => {
  if (error instanceof SandboxFailed) return undefined;
  throw error;
});

const LIMITS = { cpu_s: 1, wall_s: 1.5, total_s: 20, memory_mb: 256, output_bytes: 10_000 };
/** Seconds beyond its limit that an attack may take on a busy machine; one that blocked the sandbox would take `total_s`. */
const GRACE_S = 12;
/** For programs that are to come to their ends, however busy the machine is. */
const UNHURRIED = { ...LIMITS, cpu_s: 30, wall_s: 60, total_s: 120 };

function job(program: string, inputs: readonly string[] = [''], more: Partial<Job> = {}): Job {
  return { ...LIMITS, program, function: null, inputs, ...more };
}

function poolOf(slots: number) {
  const pool = new SandboxPool({ slots, guestSlots: 0, queueLength: 100, queueSeconds: 600 });
  return {
    pool,
    run: (job: Job) => pool.run(job, 'tester', asText),
  };
}

const { port } = await listenLocally(
  t,
  createServer(socket => socket.end('reached')),
);
const SECRET = new URL('../../../../package.json', import.meta.url).pathname;

/** Programs that attack the sandbox. None may print what it looks for. */
const ATTACKS: { readonly [name: string]: string } = {
  'reads a file': `print(open(${JSON.stringify(SECRET)}).read())`,
  'reads the passwords': "print(open('/etc/passwd').read())",
  'lists the processes': "import os; print([p for p in os.listdir('/proc')])",
  'lists a folder': `import os; print(os.listdir(${JSON.stringify(dirname(SECRET))}))`,
  'reads through os.open': "import os; print(os.read(os.open('/etc/hostname', os.O_RDONLY), 100))",
  'writes a file': "open('/tmp/escaped', 'w').write('x'); print('written')",
  'writes next to itself': "open('escaped', 'a').write('x'); print('written')",
  'makes a folder': "import os; os.mkdir('/tmp/escaped'); print('made')",
  'removes the library': 'import os; os.unlink(os.__file__); print("removed")',
  'opens a socket': `import socket; s = socket.create_connection(('127.0.0.1', ${port}), 1); print(s.recv(20))`,
  'listens on a socket': "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print('bound')",
  'opens a unix socket': "import socket; socket.socketpair(); print('paired')",
  'asks a name server': "import socket; print(socket.gethostbyname('example.com'))",
  forks: "import os; print('forked', os.fork())",
  'forks without end': 'import os\nwhile True:\n    os.fork()',
  'starts a program': "import subprocess; print(subprocess.run(['/bin/true'])); print('ran')",
  'calls a shell': "import os; print('status', os.system('id') == 0 and 'ran' or 1 // 0)",
  'executes in its place': "import os; os.execv('/bin/echo', ['echo', 'executed'])",
  'starts a process pool':
    'import multiprocessing; p = multiprocessing.Process(target=print); p.start(); print("started")',
  'kills its parent': 'import os, signal; os.kill(os.getppid(), signal.SIGKILL); print("killed")',
  'kills everybody': 'import os, signal; os.kill(-1, signal.SIGKILL); print("killed")',
  'stops its group': 'import os, signal; os.killpg(0, signal.SIGSTOP); print("stopped")',
  'kills by system call':
    'import ctypes, os; r = ctypes.CDLL(None).kill(os.getppid(), 9); assert r == 0; print("killed")',
  'traces its parent':
    'import ctypes, os; r = ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0); assert r == 0; print("traced")',
  mounts:
    "import ctypes; r = ctypes.CDLL(None).mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None); assert r == 0; print('mounted')",
  'makes a namespace':
    'import ctypes; r = ctypes.CDLL(None).unshare(0x10000000); assert r == 0; print("unshared")',
  'becomes root': 'import os; os.setuid(0); print("root", open("/etc/shadow").read())',
  'changes its root': "import os; os.chroot('.'); print('changed')",
  'undoes its limits': "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); print('undone')",
  'loops for ever': 'while True: pass',
  'sleeps for ever': 'import time; time.sleep(1000)',
  'waits for more input': 'import time, sys\nwhile True:\n    sys.stdin.read(); time.sleep(0.01)',
  'ignores its end':
    'import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except Exception: pass\nwhile True: pass',
  'closes its ends and continues': 'import os, time\nos.closerange(0, 64)\nwhile True: time.sleep(1)',
  'eats memory': 'x = [0]\nwhile True: x = x * 2',
  'eats memory by bytes': 'x = bytearray(1 << 40); print(len(x))',
  'floods its output': "while True: print('x' * 1000)",
  'floods its errors': "import sys\nwhile True: sys.stderr.write('x' * 1000)",
  'recurses without end': 'def f(): return f() + 1\nprint(f())',
  'recurses in C': 'import sys; sys.setrecursionlimit(10**9)\ndef f(x): return f(x + 1) + 1\nprint(f(0))',
  'makes threads without end':
    'import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()',
  crashes: 'import ctypes; ctypes.string_at(0); print("alive")',
  aborts: 'import os; os.abort()',
  'writes to other descriptors':
    'import os\nfor n in range(3, 256):\n    try: os.write(n, b\'{"results":[]}\\n\')\n    except OSError: pass\nraise SystemExit(1)',
  'imports the host': 'import js; print(js)',
  'looks for the host in its harness':
    "import gc\nleaks = [o for o in gc.get_objects() if isinstance(o, dict) and ('expected' in o or 'wanted' in o)]\nassert leaks; print(leaks)",
  'is not a program': 'def (:',
  'is binary': '\u0000\u0001',
};

t.test('programs run isolated', { skip: !isolation && 'no isolation on this machine' }, async t => {
  const { pool, run } = poolOf(2);
  t.teardown(() => pool.stop());
  const { walls, proven } = await pool.warm();
  t.ok(proven, walls.join(', '));

  const honest = () => run(job('print(int(input()) ** 2)', ['7\n', '9\n'], UNHURRIED));
  const squares = [
    { status: 'ok', output: '49\n', error: '' },
    { status: 'ok', output: '81\n', error: '' },
  ];
  t.same(await honest(), squares);

  for (const [name, program] of Object.entries(ATTACKS)) {
    const began = performance.now();
    const [result] = await run(job(program));
    const seconds = (performance.now() - began) / 1000;
    t.not(result.status, 'ok', `${name}: ${result.status} ${result.error.slice(0, 80)}`);
    t.equal(result.output, '', `${name} says nothing`);
    if (seconds > LIMITS.wall_s + GRACE_S) t.fail(`${name} took ${seconds} s`);
  }
  t.same(await honest(), squares, 'the pool continues');
  t.notOk(existsSync('/tmp/escaped'));
  t.ok(readFileSync(SECRET, 'utf8').length > 0);
});

t.test('one sandbox outlives every attack, and tests share nothing', { skip: !isolation }, async t => {
  const sandbox = await Sandbox.start(sandboxCommand(isolation!, 0));
  t.teardown(() => sandbox.stop());
  for (const program of Object.values(ATTACKS).slice(0, 24)) await sandbox.run(job(program), asText);
  const counting =
    "import builtins\nbuiltins.n = getattr(builtins, 'n', 0) + 1\nimport math\nmath.pi += 1\nprint(builtins.n, int(math.pi))";
  const results = await sandbox.run(job(counting, ['', ''], UNHURRIED), asText);
  t.same(
    results.map(result => result.output),
    ['1 4\n', '1 4\n'],
  );
});

t.test('invalid programs and early exits fail every test', { skip: !isolation }, async t => {
  const { pool, run } = poolOf(1);
  t.teardown(() => pool.stop());
  const statuses = async (program: string) =>
    (await run(job(program, ['1', '2', '3'], UNHURRIED))).map(({ status, output }) => [status, output]);
  t.same(await statuses('print(1'), Array(3).fill(['invalid', '']));
  t.same(await statuses('n = input(); print(n)\nif n == "2": raise SystemExit(98)'), [
    ['ok', '1\n'],
    ['error', ''],
    ['ok', '3\n'],
  ]);
});

t.test('time is shared out: tests after the last second fail', { skip: !isolation }, async t => {
  const { pool, run } = poolOf(1);
  t.teardown(() => pool.stop());
  const results = await run(
    job("import time\nif input() == 'wait': time.sleep(100)\nprint('done')", ['go', 'wait', 'wait', 'go'], {
      total_s: 5,
      wall_s: 4,
    }),
  );
  t.same(
    results.map(result => result.status),
    ['ok', 'timeout', 'timeout', 'timeout'],
  );
});

t.test('functions and methods are called with their arguments', { skip: !isolation }, async t => {
  const { pool, run } = poolOf(1);
  t.teardown(() => pool.stop());
  const call = async (program: string, inputs: Job['inputs'], name = 'add') =>
    (await run({ ...UNHURRIED, program, function: name, inputs })).map(({ status, output }) => [
      status,
      output,
    ]);
  t.same(
    await call('def add(a, b):\n    print("noise")\n    return a + b', [
      [1, 2],
      [['x'], ['y']],
    ]),
    [
      ['ok', '3'],
      ['ok', '["x", "y"]'],
    ],
  );
  t.same(await call('class Solution:\n    def add(self, a, b):\n        return (a, b)', [[1, null]]), [
    ['ok', '[1, null]'],
  ]);
  t.same(await call('def other(): pass', [[1, 2]]), [['error', '']]);
  t.same(await call('def add(a, b): return {1, 2}', [[1, 2]]), [['error', '']]);
});

t.test('threads and deep recursion work', { skip: !isolation }, async t => {
  const { pool, run } = poolOf(1);
  t.teardown(() => pool.stop());
  const threaded =
    'import threading, sys\nsys.setrecursionlimit(50000)\nthreading.stack_size(64 << 20)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(20000)))\nt.start(); t.join()';
  const results = await run(job(threaded, [''], { ...UNHURRIED, memory_mb: 512 }));
  t.same(results, [{ status: 'ok', output: '20000\n', error: '' }]);
  const standard =
    'import sys, math, heapq, collections, itertools, functools, bisect, re, json, random, string, datetime, decimal, fractions, statistics, array, typing, dataclasses\nprint(sys.stdin.read().split())';
  t.match(await run(job(standard, ['a b\nc\n'], UNHURRIED)), [{ status: 'ok', output: "['a', 'b', 'c']\n" }]);
});
