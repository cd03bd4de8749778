import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { asText, type Job, Sandbox, SandboxFailed } from './sandbox.ts';

/** Interpreter for untrusted programs; `python3` by default. */
export const PYTHON_VARIABLE = 'RAGEN_DEEPCODER_PYTHON';
/** An operator who runs programs without isolation sets this to 1. */
export const UNISOLATED_VARIABLE = 'RAGEN_DEEPCODER_UNISOLATED';

const HARNESS = fileURLToPath(new URL('./harness.py', import.meta.url));
/** Long, for a busy machine. */
const PYTHON_MS = 30_000;
/** Milliseconds until a machine without isolation is tested again. */
const RETRY_MS = 10_000;
/**
 * Users for programs where root runs the server, one for each sandbox: between the ranges of systemd-homed and
 * DynamicUser, outside every distribution's ranges for people and services.
 */
const FIRST_UID = 60_600;
const UIDS = 480;
/** Gives servers on one machine different users, as far as the range allows. */
const UID_STRIDE = 16;

/** New namespaces for a sandbox. */
const NAMESPACES = ['--mount', '--pid', '--net', '--ipc', '--uts', '--fork', '--kill-child'];
/** Ways to start the harness, strongest first: in namespaces made by root, by a user, or in none. */
export const WAYS = {
  root: ['unshare', ...NAMESPACES],
  user: ['unshare', '--user', '--map-root-user', ...NAMESPACES],
  none: [],
} as const satisfies { [spaces: string]: readonly string[] };
export type Namespaces = keyof typeof WAYS;

/** Command that starts sandboxes on this machine, and the walls it provides. */
export interface Isolation {
  readonly python: string;
  readonly spaces: Namespaces;
  /** See README.md. */
  readonly walls: readonly string[];
  /** True if a hostile test program was contained. */
  readonly proven: boolean;
}

/** The command that starts the sandbox of a slot. */
export function sandboxCommand(
  { python, spaces }: Pick<Isolation, 'python' | 'spaces'>,
  slot: number,
): string[] {
  const uid = FIRST_UID + ((process.pid * UID_STRIDE + slot) % UIDS);
  return [...WAYS[spaces], python, '-I', '-S', '-B', HARNESS, spaces, String(uid)];
}

interface Search {
  readonly settings: string;
  readonly isolation: Promise<Isolation>;
  failedAt: number | undefined;
}

let search: Search | undefined;

/**
 * The strongest isolation that works here, found by running test programs, once for the variables' settings.
 * @throws SandboxFailed where there is no Python, or no isolation and the operator has not allowed to run without
 */
export function findIsolation(): Promise<Isolation> {
  const settings = JSON.stringify([process.env[PYTHON_VARIABLE], process.env[UNISOLATED_VARIABLE]]);
  const isStale = search?.failedAt !== undefined && performance.now() - search.failedAt > RETRY_MS;
  if (search?.settings === settings && !isStale) return search.isolation;
  const begun: Search = { settings, isolation: findStrongest(), failedAt: undefined };
  begun.isolation.catch(() => {
    begun.failedAt = performance.now();
  });
  search = begun;
  return begun.isolation;
}

async function findStrongest(): Promise<Isolation> {
  const python = await findPython();
  const faults: string[] = [];
  let weak: Isolation | undefined;
  for (const spaces of Object.keys(WAYS) as Namespaces[]) {
    if (spaces === 'root' && process.getuid?.() !== 0) continue;
    try {
      const { isolation, fault } = await tryWay(python, spaces);
      if (fault === undefined) return isolation;
      weak = isolation;
      faults.push(`${nameOf(spaces)}: ${fault}`);
    } catch (error) {
      if (!(error instanceof SandboxFailed)) throw error;
      faults.push(`${nameOf(spaces)}: ${error.message}`);
    }
  }
  if (weak && process.env[UNISOLATED_VARIABLE] === '1') return weak;
  throw new SandboxFailed(
    `this machine offers no isolation for untrusted programs (${faults.join('; ')}); an operator can run them anyway with ${UNISOLATED_VARIABLE}=1`,
  );
}

function nameOf(spaces: Namespaces): string {
  return { root: 'namespaces of root', user: 'a user namespace', none: 'without namespaces' }[spaces];
}

/** @throws SandboxFailed where even correct programs do not run */
async function tryWay(python: string, spaces: Namespaces): Promise<{ isolation: Isolation; fault?: string }> {
  const sandbox = await Sandbox.start(sandboxCommand({ python, spaces }, 0));
  try {
    const { walls } = sandbox;
    const service = await faultOfService(sandbox);
    if (service !== undefined) throw new SandboxFailed(service);
    const fault = (await faultOfContainment(sandbox)) ?? missingWall(walls);
    return { isolation: { python, spaces, walls, proven: fault === undefined }, fault };
  } finally {
    sandbox.stop();
  }
}

/** First missing required wall, or undefined. */
function missingWall(walls: readonly string[]): string | undefined {
  if (walls.includes('seccomp') && (walls.includes('mount') || walls.includes('landlock'))) return undefined;
  return `only ${walls.join(', ')}`;
}

/**
 * The interpreter itself, not a script that starts it.
 * @throws SandboxFailed
 */
export async function findPython(timeoutMs = PYTHON_MS): Promise<string> {
  const python = process.env[PYTHON_VARIABLE] || 'python3';
  let path: string;
  try {
    const { stdout } = await promisify(execFile)(python, ['-c', "import sys; print(sys.executable or '')"], {
      timeout: timeoutMs,
    });
    path = stdout.trim();
  } catch (error) {
    const { killed, message } = error as Error & { killed?: boolean };
    const reason = killed ? `it did not start within ${timeoutMs / 1000} s` : message.split('\n')[0];
    throw new SandboxFailed(`programs need Python: ${python} does not run (${reason})`);
  }
  if (!path)
    throw new SandboxFailed(
      `programs need Python: ${python} does not know its own path; set ${PYTHON_VARIABLE}`,
    );
  return path;
}

/** Generous: what is tested is whether programs run and are kept in, however busy the machine is. */
const LIMITS = { cpu_s: 20, wall_s: 60, total_s: 120, memory_mb: 256, output_bytes: 10_000 };
/** A file of the server that no program may read. */
const OWN_FILE = fileURLToPath(import.meta.url);

/** Reads, imports from disk, starts a thread, prints. */
const CORRECT: Job = {
  ...LIMITS,
  program: [
    'import colorsys, threading',
    'n = int(input())',
    'thread = threading.Thread(target=lambda: print(n * n, int(colorsys.rgb_to_hsv(0, 0, n)[2])))',
    'thread.start()',
    'thread.join()',
  ].join('\n'),
  function: null,
  inputs: ['7\n'],
};
const CALLED: Job = { ...LIMITS, program: 'def twice(n): return 2 * n', function: 'twice', inputs: [[21]] };

/** Prints the name of each hostile act that succeeds, and a last line. */
const HOSTILE: Job = {
  ...LIMITS,
  program: `
import ctypes, fcntl, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def tries(what, attempt):
    try:
        if attempt() != -1:
            print(what, flush=True)
    except BaseException:
        pass

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)

tries('read the passwords', lambda: open('/etc/passwd').read())
tries('read the server', lambda: open(${JSON.stringify(OWN_FILE)}).read())
tries('list the processes', lambda: os.listdir('/proc'))
tries('write a file', lambda: os.open('/tmp/ragen-self-test', os.O_WRONLY | os.O_CREAT))
tries('open a socket', lambda: socket.socket())
tries('fork', fork)
tries('signal another process', lambda: os.kill(os.getppid(), 0))
tries('be signalled for another process', lambda: fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid()))
tries('trace another process', lambda: libc.ptrace(16, os.getppid(), 0, 0))
print('contained')
`,
  function: null,
  inputs: [''],
};

/**
 * Checks that correct programs can run.
 * @returns the fault, or undefined
 * @throws SandboxFailed
 */
export async function faultOfService(sandbox: Sandbox): Promise<string | undefined> {
  for (const [job, wanted] of [
    [CORRECT, '49 7\n'],
    [CALLED, '42'],
  ] as const) {
    const [{ status, output, error }] = await sandbox.run(job, asText);
    if (status !== 'ok' || output !== wanted) {
      return `a correct program did not run: ${status} ${JSON.stringify(output)} ${error}`.trimEnd();
    }
  }
  return undefined;
}

/**
 * Checks that a hostile program is contained.
 * @returns the act that succeeded, or undefined
 * @throws SandboxFailed
 */
export async function faultOfContainment(sandbox: Sandbox): Promise<string | undefined> {
  const [{ status, output, error }] = await sandbox.run(HOSTILE, asText);
  if (status === 'ok' && output === 'contained\n') return undefined;
  const done = output.split('\n').filter(line => line !== '' && line !== 'contained');
  return done.length > 0
    ? `a program could ${done.join(', ')}`
    : `the hostile program did not end as it should: ${status} ${error}`.trimEnd();
}
