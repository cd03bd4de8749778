import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { contained, noContainer } from './container.test-data.ts';
import { FOREIGN, HOLES, machineCode, prober, SWEEPER } from './holes.test-data.ts';
import { type Namespaces, sandboxCommand } from './isolation.ts';
import { asText, Sandbox } from './sandbox.ts';

t.setTimeout(900_000);

/** Every system call that a program may not make, tried in every kind of sandbox that this machine can have. */

const LIMITS = { cpu_s: 30, wall_s: 60, total_s: 300, memory_mb: 256, output_bytes: 10_000 };
const FOLDER = dirname(fileURLToPath(import.meta.url));
const isX86 = process.arch === 'x64';

/** Runs Python next to the harness's modules. */
function python(code: string): string {
  return execFileSync(
    'python3',
    ['-B', '-c', `import sys; sys.path.insert(0, ${JSON.stringify(FOLDER)})\n${code}`],
    {
      encoding: 'utf8',
    },
  );
}

interface Kind {
  readonly spaces: Namespaces;
  /** As it would be started in a container. */
  readonly inContainer: boolean;
  readonly walls: readonly string[];
}

const KINDS: { readonly [name: string]: Kind } = {
  'an ordinary user without namespaces, as in a container': {
    spaces: 'none',
    inContainer: true,
    walls: ['rlimits', 'seccomp', 'landlock'],
  },
  'this user without namespaces': {
    spaces: 'none',
    inContainer: false,
    walls: ['rlimits', 'seccomp', 'landlock'],
  },
  'a user namespace': {
    spaces: 'user',
    inContainer: false,
    walls: ['seccomp', 'mount', 'pid', 'net', 'ipc'],
  },
  'namespaces of root': {
    spaces: 'root',
    inContainer: false,
    walls: ['seccomp', 'mount', 'pid', 'net', 'ipc', 'uid'],
  },
};

/** A sandbox of a kind, and a process that its programs would signal; or why there is none. */
async function start(
  t: Test,
  { spaces, inContainer }: Kind,
): Promise<{ sandbox: Sandbox; victim: ChildProcess } | string> {
  const why = inContainer && noContainer();
  if (why) return why;
  const put = (command: readonly string[]) => (inContainer ? contained(command) : [...command]);
  const [program, ...args] = put(['sleep', '1000']);
  const victim = spawn(program, args, { stdio: 'ignore' });
  t.teardown(() => victim.kill('SIGKILL'));
  try {
    const sandbox = await Sandbox.start(put(sandboxCommand({ python: 'python3', spaces }, 0)));
    t.teardown(() => sandbox.stop());
    return { sandbox, victim };
  } catch (error) {
    return (error as Error).message;
  }
}

for (const [name, kind] of Object.entries(KINDS)) {
  t.test(`${name}: no system call reaches outside the program`, async t => {
    const started = await start(t, kind);
    if (typeof started === 'string') {
      t.pass(name, { skip: started });
      return;
    }
    const { sandbox, victim } = started;
    for (const wall of kind.walls) t.ok(sandbox.walls.includes(wall), wall);

    const probe = { ...LIMITS, program: prober(HOLES), function: null, inputs: [`${victim.pid}\n`] };
    const [{ status, output, error }] = await sandbox.run(probe, asText);
    t.equal(status, 'ok', error);
    const found = JSON.parse(output) as { [hole: string]: string };
    for (const [hole, numbers] of HOLES) {
      const wanted = hole === 'clone3' ? 'ENOSYS' : 'EPERM';
      if (numbers[isX86 ? 0 : 1] !== null) t.equal(found[hole], wanted, hole);
    }

    const known = python(
      'import system_calls as s; print(*[n for g in (s.FREE.values(), (v[0] for v in s.GUARDED.values()), s.ABSENT.values()) for p in g for n in [p[s.ARCHITECTURES[s.platform.machine()][1]]] if n is not None])',
    );
    const [swept] = await sandbox.run(
      { ...LIMITS, program: SWEEPER, function: null, inputs: [known] },
      asText,
    );
    t.equal(swept.output, '[]\n', `every number that is not in the table: ${swept.error}`);

    for (const [what, bytes] of isX86 ? Object.entries(FOREIGN) : []) {
      const job = { ...LIMITS, program: machineCode(bytes), function: null, inputs: [''] };
      const [{ status, output, error }] = await sandbox.run(job, asText);
      t.match({ status, output, error }, { status: 'error', output: '', error: /SIG(SYS|SEGV)/ }, what);
    }

    t.same([victim.exitCode, victim.signalCode], [null, null], 'the process that they aimed at lives');
    const job = { ...LIMITS, program: 'print(input())', function: null, inputs: ['still here\n'] };
    t.match(await sandbox.run(job, asText), [{ status: 'ok', output: 'still here\n' }], 'the harness lives');
  });
}

t.test('the filter is the same for both architectures', async t => {
  const verdicts = JSON.parse(
    python(`
import json, struct
import system_calls as s

def verdict(machine, audit, number, arguments=()):
    data = struct.pack("=IIQ6Q", number, audit, 0, *[a & (2**64 - 1) for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6]])
    code = s.Filter(machine).code_for(77)
    at = a = 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", code, 8 * at)
        at += 1
        if operation == s.LOAD: a = struct.unpack_from("=I", data, value)[0]
        elif operation == s.AND: a &= value
        elif operation == s.EQUAL: at += if_true if a == value else if_false
        elif operation == s.AT_LEAST: at += if_true if a >= value else if_false
        elif operation == s.RETURN: return value
        else: raise ValueError(operation)

found = {}
for machine, (audit, column) in s.ARCHITECTURES.items():
    allowed = {name for name, numbers in s.FREE.items() if numbers[column] is not None and verdict(machine, audit, numbers[column]) == s.ALLOW}
    numbers = {n[column] for n in s.FREE.values()} | {g[0][column] for g in s.GUARDED.values()} | {n[column] for n in s.ABSENT.values()}
    guarded = lambda name, *arguments: verdict(machine, audit, s.GUARDED[name][0][column], arguments) == s.ALLOW
    found[machine] = {
        "free": len(allowed) == sum(numbers[column] is not None for numbers in s.FREE.values()),
        "others": sorted({verdict(machine, audit, n) for n in range(2000) if n not in numbers}),
        "foreign": verdict(machine, 0x40000003, 1),
        "harmless": [guarded("fcntl", 1, 3), guarded("fcntl", 1, 4, 0o4000), guarded("ioctl", 1, 0x5401), guarded("prctl", 15),
                     guarded("openat", 0, 0, 0o2000000), guarded("clone", 0x3D0F00), guarded("clone", 0x7D0F00), guarded("tgkill", 77, 78, 6),
                     guarded("prlimit64", 0, 0, 0, 5), guarded("prlimit64", 77, 3, 5)],
        "harmful": [guarded("fcntl", 1, 8), guarded("fcntl", 1, 4, 0o20000), guarded("ioctl", 1, 0x5412), guarded("prctl", 1),
                    guarded("openat", 0, 0, 1), guarded("clone", 17), guarded("tgkill", 78, 78, 6), guarded("tgkill", 77, 78, 9),
                    guarded("prlimit64", 0, 0, 1 << 40), guarded("prlimit64", 1, 3), guarded("prlimit64", 0, 6, 5)],
    }
print(json.dumps(found))
`),
  );
  for (const machine of ['x86_64', 'aarch64']) {
    t.same(verdicts[machine], {
      free: true,
      others: [0x00050001],
      foreign: 0x80000000,
      harmless: Array(10).fill(true),
      harmful: Array(11).fill(false),
    });
  }
});
