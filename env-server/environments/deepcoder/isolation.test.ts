import { chmodSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { playing } from '../../../test/environment-contract.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { deepCoder, stopSandboxes } from './deepcoder.ts';
import { contained, noContainer } from './sandbox/container.test-data.ts';
import {
  faultOfContainment,
  faultOfService,
  findIsolation,
  findPython,
  PYTHON_VARIABLE,
  sandboxCommand,
  UNISOLATED_VARIABLE,
} from './sandbox/isolation.ts';
import { Sandbox, SandboxFailed } from './sandbox/sandbox.ts';

const { [PYTHON_VARIABLE]: python, [UNISOLATED_VARIABLE]: unisolated } = process.env;
const TASK = { statement: 'Say yes.', tests: [{ input: '', output: 'yes\n' }] };
const LIMITS = { cpu_s: 30, wall_s: 60, total_s: 60, memory_mb: 256, output_bytes: 1000 };

const isolated = await findIsolation().then(
  () => true,
  (error: unknown) => {
    if (error instanceof SandboxFailed) return false;
    throw error;
  },
);
const skip = !isolated && 'no isolation on this machine';

/** An interpreter that runs the harness after changes to its modules `walls` and `os`. */
function interpreter(folder: string, changes: string): string {
  const script = `#!/bin/sh
if [ "$1" = -c ]; then echo "$0"; exit; fi
while [ "\${1#-}" != "$1" ]; do shift; done
exec python3 -I -S -B -c '
import os, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import walls
${changes}
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
' "$@"
`;
  const path = join(t.testdir({ [folder]: { python: script } }), folder, 'python');
  chmodSync(path, 0o755);
  return path;
}

/** Neither filter nor Landlock nor namespaces, as on an old kernel in a container. */
const BARE = `
def refuse(): raise OSError("refused")
walls.filter_of_this_machine = lambda: None
walls.landlock_version = lambda: 0
walls.enter_bare_root = refuse
`;

t.beforeEach(() => {
  delete process.env[UNISOLATED_VARIABLE];
  delete process.env[PYTHON_VARIABLE];
});
t.teardown(() => {
  stopSandboxes();
  for (const [name, value] of [
    [PYTHON_VARIABLE, python] as const,
    [UNISOLATED_VARIABLE, unisolated] as const,
  ]) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

t.test('without Python no program is run, and it is said why', async t => {
  process.env[PYTHON_VARIABLE] = '/nowhere/python';
  await t.rejects(findIsolation(), {
    name: 'SandboxFailed',
    message: /need Python: \/nowhere\/python does not run/,
  });
  t.match(await deepCoder.condition(), { isolated: false, summary: /^no program is run: / });
});

t.test('a Python that does not know its own path is refused by name', async t => {
  const script = join(t.testdir({ python: '#!/bin/sh\nexit 0\n' }), 'python');
  chmodSync(script, 0o755);
  process.env[PYTHON_VARIABLE] = script;
  await t.rejects(findIsolation(), {
    name: 'SandboxFailed',
    message: `programs need Python: ${script} does not know its own path; set ${PYTHON_VARIABLE}`,
  });
});

t.test('a Python that is too slow to start is reported as such', async t => {
  const script = join(t.testdir({ python: '#!/bin/sh\nexec sleep 600\n' }), 'python');
  chmodSync(script, 0o755);
  process.env[PYTHON_VARIABLE] = script;
  await t.rejects(findPython(100), /does not run \(it did not start within 0\.1 s\)/);
});

t.test('without isolation no program is run unless the operator says so', { skip }, async t => {
  process.env[PYTHON_VARIABLE] = interpreter('bare', BARE);
  const refusal =
    /no isolation for untrusted programs \(.*without namespaces: a program could .*fork.*\); .*RAGEN_DEEPCODER_UNISOLATED=1/;
  await t.rejects(findIsolation(), { name: 'SandboxFailed', message: refusal });
  t.match(await deepCoder.condition(), { isolated: false, isolation: [], summary: /^no program is run: / });
  const play = playing(deepCoder);
  await t.rejects(play.reset({}, TASK), {
    name: 'Problem',
    code: 'isolation_unavailable',
    status: 503,
    retryAfterSeconds: Number,
    message: refusal,
  });
  for (const value of ['0', 'yes', '']) {
    process.env[UNISOLATED_VARIABLE] = value;
    await t.rejects(findIsolation(), { message: refusal }, `"${value}" is no leave`);
  }

  process.env[UNISOLATED_VARIABLE] = '1';
  t.match(await deepCoder.condition(), {
    isolated: false,
    isolation: ['rlimits'],
    summary: /^programs run WITHOUT isolation, as RAGEN_DEEPCODER_UNISOLATED=1 allows; only rlimits/,
  });
  const { info } = await play.step(await play.reset({}, TASK), 'print("yes")');
  t.match(info, { success: true, isolation: ['rlimits'] });
  stopSandboxes();
});

t.test('without isolation the self-test fails and no session begins', { skip }, async t => {
  process.env[PYTHON_VARIABLE] = interpreter('deaf', 'walls.library_folders = lambda: []');
  process.env[UNISOLATED_VARIABLE] = '1';
  await t.rejects(playing(deepCoder).reset({}, TASK), {
    code: 'isolation_unavailable',
    message: /a correct program did not run/,
  });
});

t.test('as in a container: an ordinary user, no namespaces, no_new_privs not set', async t => {
  const why = noContainer();
  if (why !== false) {
    t.pass('as in a container', { skip: why });
    return;
  }
  const command = sandboxCommand({ python: 'python3', spaces: 'none' }, 0);
  const sandbox = await Sandbox.start(contained(command));
  t.teardown(() => sandbox.stop());
  t.ok(
    ['rlimits', 'seccomp', 'landlock'].every(wall => sandbox.walls.includes(wall)),
    sandbox.walls.join(', '),
  );
  t.equal(await faultOfService(sandbox), undefined, 'correct programs get their reward');
  t.equal(await faultOfContainment(sandbox), undefined, 'hostile programs are contained');
});

t.test('a wall that does not stand is a fault of the sandbox, not a result', { skip }, async t => {
  const folder = interpreter(
    'late',
    'def refuse(self, limits): raise OSError("late")\nwalls.Walls.limit = refuse',
  );
  const sandbox = await Sandbox.start([
    folder,
    ...sandboxCommand({ python: 'python3', spaces: 'none' }, 0).slice(1),
  ]);
  await t.rejects(
    sandbox.run({ ...LIMITS, program: 'print("yes")', function: null, inputs: [''] }, result => result),
    { name: 'SandboxFailed', message: /the walls of a program do not stand: OSError: late/ },
  );
  t.ok(sandbox.isBroken);
});

t.test('no program behavior counts as a fault of the sandbox', { skip }, async t => {
  const sandbox = await Sandbox.start(sandboxCommand(await findIsolation(), 0));
  t.teardown(() => sandbox.stop());
  const programs = [
    'import os\nfor n in range(256):\n    try: os.write(n, b"{\\"fault\\": \\"mine\\"}\\n")\n    except OSError: pass',
    'import os, sys\nh = sys.modules["__main__"]\nh.say({"fault": "mine"}); h.say({"status": "ok", "error": "", "bytes": 0})',
    'import ctypes, os\nctypes.CDLL(None).tgkill(os.getpid(), os.getpid(), 9)\nctypes.CDLL(None).syscall(234, os.getpid(), os.getpid(), 9)',
    'import os, signal\nos.kill(os.getpid(), signal.SIGKILL)',
    'import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass',
    'import resource\nresource.setrlimit(resource.RLIMIT_AS, (0, 0))\nx = [0] * 10**8',
    ...[1, 2, 97, 98, 137, 255].map(code => `import os\nos._exit(${code})`),
  ];
  for (const program of programs) {
    const limits = { ...LIMITS, cpu_s: 1, wall_s: 5 };
    const [result] = await sandbox.run(
      { ...limits, program, function: null, inputs: [''] },
      result => result,
    );
    t.match(
      result.status,
      /^(ok|error|timeout)$/,
      `${program.slice(0, 60)}: ${result.status} ${result.error}`,
    );
  }
});

/** Processes below this one, by what /proc says. */
function descendants(): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [, parent] = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1].split(' ');
      parents.set(Number(name), Number(parent));
    } catch {
      // It has ended meanwhile.
    }
  }
  const below = (of: number): number[] =>
    [...parents].flatMap(([child, parent]) => (parent === of ? [child, ...below(child)] : []));
  return below(process.pid);
}

t.test('a program killed from outside is a problem that leaves the episode as it was', { skip }, async t => {
  const play = playing(deepCoder);
  const state = await play.reset({ wall_s: 60 }, TASK);
  const killed = new Set<number>();
  let over = false;
  const program =
    'import ctypes, time\nctypes.CDLL(None).prctl(15, b"slow program", 0, 0, 0)\ntime.sleep(50)';
  const step = play.step(state, program).finally(() => {
    over = true;
  });
  step.catch(() => undefined);
  const isTheProgram = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/stat`, 'utf8').includes('(slow program)');
    } catch {
      return false;
    }
  };
  await until(() => {
    for (const pid of descendants()) {
      if (!killed.has(pid) && isTheProgram(pid)) {
        process.kill(pid, 'SIGKILL');
        killed.add(pid);
      }
    }
    return over;
  });
  await t.rejects(step, { code: 'isolation_unavailable', message: /killed from outside/ });
  t.equal(killed.size, 2, 'it was tried twice');
  t.match(await play.step(state, 'print("yes")'), { reward: 1 });
});
