import { fileURLToPath } from 'node:url';
import { asText, type Job, type Sandbox } from './sandbox.ts';

/** Generous: what is tested is whether programs run and are kept in, however busy the machine is. */
const LIMITS = { cpu_s: 20, wall_s: 60, total_s: 120, memory_mb: 256, output_bytes: 10_000 };
/** Something of the server that no program may read. */
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

/** Prints the name of everything that it gets done, and a last line. */
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
 * Whether correct programs get what they should.
 * @returns what is wrong, or undefined
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
 * Whether a hostile program is contained.
 * @returns what it got done, or undefined
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
