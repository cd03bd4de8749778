import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Json } from '../../../shared/json.ts';

/** Interpreter for untrusted programs; `python3` where it is not set. */
export const PYTHON_VARIABLE = 'RAGEN_DEEPCODER_PYTHON';
/** Set to 1 by an operator who runs programs without isolation all the same. */
export const UNISOLATED_VARIABLE = 'RAGEN_DEEPCODER_UNISOLATED';

const SCRIPT = fileURLToPath(new URL('./sandbox.py', import.meta.url));
/** All that programs see of the environment variables. */
const ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C.UTF-8' };
const START_MS = 10_000;
/** What a job may take beyond the time of its tests. */
const GRACE_MS = 5000;
const LONGEST_LINE = 256 * 1024 * 1024;

/** Ways to start the script, strongest first: in namespaces made by root or by a user, or with none. */
const SPACES = ['--mount', '--pid', '--net', '--ipc', '--uts', '--fork', '--kill-child'];
const WAYS: readonly (readonly [spaces: string, prefix: readonly string[]])[] = [
  ['root', ['unshare', ...SPACES]],
  ['user', ['unshare', '--user', '--map-root-user', ...SPACES]],
  ['none', []],
];

export interface Limits {
  readonly cpu_s: number;
  readonly wall_s: number;
  /** For all tests of a program together. */
  readonly total_s: number;
  readonly memory_mb: number;
  readonly output_bytes: number;
}

export interface Job extends Limits {
  readonly program: string;
  readonly function: string | null;
  /** Text for programs that read, a list of arguments for functions. */
  readonly inputs: readonly Json[];
}

export interface RunResult {
  readonly status: 'ok' | 'error' | 'timeout' | 'output';
  readonly output: string;
  readonly error: string;
}

/** There is no sandbox on this machine, or it broke. */
export class SandboxFailed extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SandboxFailed';
  }
}

/** How sandboxes are started on this machine, and the walls that then stand. */
export interface Isolation {
  readonly command: readonly string[];
  /** E.g. rlimits, seccomp, mount, pid, net, ipc; see `sandbox.py`. */
  readonly walls: readonly string[];
}

/** Files and network are out of reach, and no process can be started. */
export function isIsolated({ walls }: Isolation): boolean {
  return walls.includes('seccomp') && (walls.includes('mount') || walls.includes('landlock'));
}

let found: Promise<Isolation> | undefined;

/**
 * The strongest isolation that works here, found out once.
 * @throws SandboxFailed where there is no Python, or no isolation and the operator has not allowed to do without
 */
export function findIsolation(): Promise<Isolation> {
  found ??= probe();
  found.catch(() => {
    found = undefined;
  });
  return found;
}

async function probe(): Promise<Isolation> {
  const python = await findPython();
  const faults: string[] = [];
  let weak: Isolation | undefined;
  for (const [spaces, prefix] of WAYS) {
    if (spaces === 'root' && process.getuid?.() !== 0) continue;
    const command = [...prefix, python, '-I', '-S', '-B', SCRIPT, spaces];
    try {
      const sandbox = await Sandbox.start(command);
      sandbox.stop();
      const isolation = { command, walls: sandbox.walls };
      if (isIsolated(isolation)) return isolation;
      weak = isolation;
    } catch (error) {
      faults.push((error as Error).message);
    }
  }
  if (weak && process.env[UNISOLATED_VARIABLE] === '1') return weak;
  throw new SandboxFailed(
    `this machine offers no isolation for untrusted programs (${weak ? `only ${weak.walls.join(', ')}` : faults.join('; ')}); an operator can run them all the same with ${UNISOLATED_VARIABLE}=1`,
  );
}

/** The interpreter itself, not a script that starts it. */
async function findPython(): Promise<string> {
  const python = process.env[PYTHON_VARIABLE] ?? 'python3';
  try {
    const { stdout } = await promisify(execFile)(python, ['-c', 'import sys; print(sys.executable)'], {
      timeout: START_MS,
    });
    return stdout.trim();
  } catch (error) {
    throw new SandboxFailed(
      `programs need Python: ${python} does not run (${(error as Error).message.split('\n')[0]})`,
    );
  }
}

/** One process of `sandbox.py`, which runs one job after the other. */
export class Sandbox {
  readonly #child: ChildProcess;
  #walls: readonly string[] = [];
  #buffer = '';
  #errors = '';
  #waiting: ((line: string | SandboxFailed) => void) | undefined;
  #broken: SandboxFailed | undefined;

  private constructor(command: readonly string[]) {
    const [program, ...args] = command;
    const child = spawn(program, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
      env: ENVIRONMENT,
      cwd: '/',
    });
    this.#child = child;
    child.stdin?.on('error', () => this.#fail('does not read'));
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => this.#read(chunk));
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      this.#errors = (this.#errors + chunk).slice(-2000);
    });
    child.on('error', error => this.#fail(`does not start: ${error.message}`));
    child.on('close', code =>
      this.#fail(`ended with code ${code}: ${this.#errors.trim().split('\n').at(-1) ?? ''}`),
    );
    this.#unref();
  }

  /** @throws SandboxFailed */
  static async start(command: readonly string[]): Promise<Sandbox> {
    const sandbox = new Sandbox(command);
    try {
      const { walls } = JSON.parse(await sandbox.#line(START_MS)) as { walls: string[] };
      sandbox.#walls = walls;
      return sandbox;
    } catch (error) {
      sandbox.stop();
      throw error instanceof SandboxFailed
        ? error
        : new SandboxFailed(`the sandbox said ${(error as Error).message}`);
    }
  }

  get walls(): readonly string[] {
    return this.#walls;
  }

  get isBroken(): boolean {
    return this.#broken !== undefined;
  }

  /** @throws SandboxFailed when the sandbox itself breaks, never for what a program does */
  async run(job: Job): Promise<readonly RunResult[]> {
    this.#child.stdin?.write(`${JSON.stringify(job)}\n`);
    const line = await this.#line(job.total_s * 1000 + GRACE_MS);
    const { results } = JSON.parse(line) as { results: RunResult[] };
    return results;
  }

  /** Kills the process and all that it started. */
  stop(): void {
    this.#fail('was stopped');
    const { pid } = this.#child;
    if (pid === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      this.#child.kill('SIGKILL');
    }
  }

  #line(timeoutMs: number): Promise<string> {
    if (this.#broken) return Promise.reject(this.#broken);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#fail('did not answer in time');
        this.stop();
      }, timeoutMs);
      this.#waiting = line => {
        clearTimeout(timer);
        this.#waiting = undefined;
        this.#unref();
        if (line instanceof SandboxFailed) reject(line);
        else resolve(line);
      };
      this.#ref();
    });
  }

  #read(chunk: string): void {
    this.#buffer += chunk;
    if (this.#buffer.length > LONGEST_LINE) {
      this.#fail('sent too much');
      this.stop();
      return;
    }
    const end = this.#buffer.indexOf('\n');
    if (end < 0) return;
    const line = this.#buffer.slice(0, end);
    this.#buffer = this.#buffer.slice(end + 1);
    this.#waiting?.(line);
  }

  #fail(why: string): void {
    this.#broken ??= new SandboxFailed(`the sandbox ${why}`);
    this.#waiting?.(this.#broken);
  }

  /** A waiting sandbox does not keep the program alive, a working one does. */
  #ref(): void {
    this.#child.ref();
    for (const pipe of this.#pipes()) pipe.ref();
  }

  #unref(): void {
    this.#child.unref();
    for (const pipe of this.#pipes()) pipe.unref();
  }

  #pipes(): { ref(): void; unref(): void }[] {
    const { stdin, stdout, stderr } = this.#child;
    return [stdin, stdout, stderr] as unknown as { ref(): void; unref(): void }[];
  }
}
