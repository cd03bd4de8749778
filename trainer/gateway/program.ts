import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { ProgramFault } from '../rollout/episode-agent.ts';

/** Length of the end of standard error that is kept for the log. */
const TAIL_BYTES = 4096;
const TAIL_LINES = 12;
/** Milliseconds from SIGTERM to SIGKILL. */
const GRACE_MS = 2000;
/** Longest wait for the last output of a program that has ended, in milliseconds. */
const LAST_WORDS_MS = 1000;
/** Our variables that foreign programs do not get: addresses, tokens and keys. */
const PRIVATE = /^(RAGEN_|OPENAI_|NODE_OPTIONS$)|(TOKEN|SECRET|PASSWORD|CREDENTIALS|_KEY)$/i;

/** The variable that marks a program and what it starts, also daemons that leave its process group. */
const MARK = 'RAGEN_PROGRAM';

/** A running foreign program, with all its children: in a process group, or found by a mark when it has ended. */
export class Program {
  /** Resolves when it ends with status 0; rejects with a ProgramFault otherwise. */
  readonly ended: Promise<void>;
  readonly #process: ChildProcess;
  #tail = Buffer.alloc(0);
  readonly #mark = randomUUID();
  #hasEnded = false;

  /**
   * Starts a program in the current folder.
   * @param variables added to the trainer's own environment, which is passed without secrets
   */
  constructor(command: readonly string[], variables: { readonly [name: string]: string }) {
    const [file, ...args] = command;
    this.#process = spawn(file, args, {
      env: { ...publicEnvironment(), ...variables, [MARK]: this.#mark },
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
    });
    this.#process.stderr?.on('data', (data: Buffer) => {
      this.#tail = Buffer.concat([this.#tail, data]).subarray(-TAIL_BYTES);
    });
    this.ended = new Promise((resolve, reject) => {
      const fail = (why: string, cause?: Error) => {
        this.#hasEnded = true;
        reject(new ProgramFault(`${file} ${why}${this.#lastLines()}`, { cause }));
      };
      this.#process.once('error', error => fail(`could not be started: ${error.message}`, error));
      let swept: Promise<void> | undefined;
      const settle = async (code: number | null, signal: string | null) => {
        await swept;
        this.#hasEnded = true;
        if (code === 0) resolve();
        else fail(signal ? `was ended by ${signal}` : `ended with status ${code}`);
      };
      this.#process.once('exit', (code, signal) => {
        this.#signal('SIGKILL');
        swept = killMarked(MARK, this.#mark);
        // A child that is not found may hold standard error open.
        const late = setTimeout(() => {
          this.#process.stderr?.destroy();
          settle(code, signal);
        }, LAST_WORDS_MS);
        this.#process.once('close', () => clearTimeout(late));
      });
      this.#process.once('close', settle);
    });
    // The caller may await it later.
    this.ended.catch(() => {});
  }

  /** Stops it and its children, and kills them soon after. */
  async stop(): Promise<void> {
    if (this.#hasEnded) return;
    this.#signal('SIGTERM');
    const kill = setTimeout(() => this.#signal('SIGKILL'), GRACE_MS);
    await this.ended.catch(() => {});
    clearTimeout(kill);
  }

  /** The fault of a program that was stopped for a reason, with its last output. */
  fault(why: string): ProgramFault {
    return new ProgramFault(why + this.#lastLines());
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }

  #lastLines(): string {
    const lines = this.#tail.toString().trimEnd().split('\n').slice(-TAIL_LINES);
    return lines.join('') === '' ? '' : `; its last lines of standard error:\n${lines.join('\n')}`;
  }
}

function publicEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !PRIVATE.test(name)));
}

/** Searches until nothing is found, at most: a process may fork while the others are searched. */
const MAX_SEARCHES = 10;
const PID = /^[1-9]\d*$/;

/**
 * Kills the processes of this user that have a variable in their environment, wherever they moved: a process keeps the
 * environment that its program was started with over `setsid` and forks. One that starts another program with an empty
 * environment is not found. Does nothing where there is no `/proc`.
 */
async function killMarked(name: string, value: string): Promise<void> {
  const mark = `${name}=${value}`;
  for (let left = MAX_SEARCHES; left > 0; left--) {
    const pids = (await readdir('/proc').catch(() => [])).filter(entry => PID.test(entry));
    const found = await Promise.all(pids.map(pid => hasMark(pid, mark)));
    if (!found.includes(true)) return;
    for (const pid of pids.filter((_, i) => found[i])) kill(Number(pid));
  }
}

async function hasMark(pid: string, mark: string): Promise<boolean> {
  // Processes of others, and those that ended, have none that can be read.
  const text = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
  return text.split('\0').includes(mark);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended, or became another user's.
  }
}
