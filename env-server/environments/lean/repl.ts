import { type ChildProcess, spawn } from 'node:child_process';
import { parseJson } from '../../../shared/json.ts';
import { remembered } from '../../../shared/remembered.ts';
import { InvalidConfig } from '../core/environment.ts';
import { killGroup } from '../deepcoder/sandbox/sandbox.ts';
import {
  axiomsCommand,
  type Backend,
  BackendFailed,
  type LeanMessage,
  NO_ANSWER,
  sourceOf,
  type Theorem,
  type Verdict,
  verdictOf,
  verdictOnAxioms,
} from './backend.ts';

/**
 * The command that starts Lean's REPL (https://github.com/leanprover-community/repl), e.g. `lake env repl` in a
 * project's folder; set by the operator, never by a configuration. Words are separated by spaces.
 */
export const REPL_COMMAND_VARIABLE = 'RAGEN_LEAN_REPL';
/** Working folder of the REPL. */
const REPL_FOLDER_VARIABLE = 'RAGEN_LEAN_REPL_DIR';
const MAX_REPLY_LENGTH = 16 * 1024 * 1024;

interface Reply {
  readonly env?: number;
  readonly message?: string;
  readonly messages?: readonly LeanMessage[];
  readonly sorries?: readonly unknown[];
}

/**
 * One process for the whole server, started on first use.
 * @throws InvalidConfig where no command is set
 */
export function replBackend(timeoutMs: number): Backend {
  const command = process.env[REPL_COMMAND_VARIABLE]?.trim();
  if (!command) {
    throw new InvalidConfig(
      '/backend',
      `repl needs the environment variable ${REPL_COMMAND_VARIABLE}, e.g. lake env repl`,
    );
  }
  const repl = processOf(command, process.env[REPL_FOLDER_VARIABLE]);
  return { check: (theorem, tactics) => repl.check(theorem, tactics, timeoutMs) };
}

const processes = new Map<string, ReplProcess>();

function processOf(command: string, folder: string | undefined): ReplProcess {
  const key = `${folder ?? ''} ${command}`;
  return remembered(processes, key, () => new ReplProcess(command.split(/\s+/), folder));
}

/** Ends all REPL processes. */
export function stopRepls(): void {
  for (const repl of processes.values()) repl.stop();
  processes.clear();
}

/** A REPL process that answers one command after another; killed and restarted when it is too slow. */
export class ReplProcess {
  readonly #command: readonly string[];
  readonly #folder: string | undefined;
  #child: ChildProcess | undefined;
  #buffer = '';
  #waiting: ((reply: Reply | Error) => void) | undefined;
  /** Environments of the headers that this process has loaded. */
  readonly #headers = new Map<string, number>();
  #queue: Promise<unknown> = Promise.resolve();

  constructor(command: readonly string[], folder?: string) {
    this.#command = command;
    this.#folder = folder;
  }

  /** Checks queue up; the time limit of each starts with its turn. */
  check(theorem: Theorem, tactics: readonly string[], timeoutMs: number): Promise<Verdict> {
    const turn = this.#queue.then(() => this.#check(theorem, tactics, timeoutMs));
    this.#queue = turn.catch(() => undefined);
    return turn;
  }

  stop(): void {
    this.#end(new BackendFailed('the Lean process was stopped'));
  }

  async #check(theorem: Theorem, tactics: readonly string[], timeoutMs: number): Promise<Verdict> {
    const deadline = performance.now() + timeoutMs;
    const { header } = theorem;
    let env: number | undefined;
    if (header !== '') {
      env = this.#headers.get(header);
      if (env === undefined) {
        const reply = await this.#ask({ cmd: header }, deadline);
        if (reply === 'timeout') return NO_ANSWER;
        if (reply.env === undefined)
          throw new BackendFailed(`Lean does not accept the header: ${reply.message ?? header}`);
        env = reply.env;
        this.#headers.set(header, env);
      }
    }
    const bare = { ...theorem, header: '' };
    const cmd = sourceOf(bare, tactics);
    const reply = await this.#ask({ cmd, ...(env !== undefined && { env }) }, deadline);
    if (reply === 'timeout') return NO_ANSWER;
    if (reply.message !== undefined) return { status: 'rejected', messages: [reply.message] };
    const verdict = verdictOf(bare, reply.messages ?? [], reply.sorries ?? []);
    if (verdict.status !== 'proved') return verdict;
    const axioms = await this.#ask({ cmd: axiomsCommand(theorem), env: reply.env }, deadline);
    if (axioms === 'timeout') return NO_ANSWER;
    return verdictOnAxioms(verdict, axioms.messages ?? []);
  }

  #ask(command: { cmd: string; env?: number }, deadline: number): Promise<Reply | 'timeout'> {
    const child = this.#child ?? this.#start();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting = undefined;
        this.#end();
        resolve('timeout');
      }, deadline - performance.now());
      this.#waiting = reply => {
        clearTimeout(timer);
        this.#waiting = undefined;
        if (reply instanceof Error) reject(reply);
        else resolve(reply);
      };
      child.stdin?.write(`${JSON.stringify(command)}\n\n`);
    });
  }

  #start(): ChildProcess {
    const [program, ...args] = this.#command;
    const child = spawn(program, args, {
      cwd: this.#folder,
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: true,
    });
    this.#child = child;
    this.#buffer = '';
    const failed = (why: string) => {
      if (this.#child === child) this.#end(new BackendFailed(why));
    };
    child.on('error', error => failed(`the Lean process does not start: ${error.message}`));
    child.on('exit', code => failed(`the Lean process ended with code ${code}`));
    child.stdin?.on('error', () => failed('the Lean process does not read'));
    child.stdout?.setEncoding('utf8');
    child.stdout?.on('data', (chunk: string) => {
      if (this.#child === child) this.#read(chunk);
    });
    child.unref();
    return child;
  }

  /** A reply ends with an empty line. */
  #read(chunk: string): void {
    this.#buffer += chunk;
    if (this.#buffer.length > MAX_REPLY_LENGTH) {
      this.#end(new BackendFailed('Lean sent too much'));
      return;
    }
    for (let end = this.#buffer.search(/\n\s*\n/); end >= 0; end = this.#buffer.search(/\n\s*\n/)) {
      const text = this.#buffer.slice(0, end);
      this.#buffer = this.#buffer.slice(end).replace(/^\n\s*\n/, '');
      if (text.trim() === '') continue;
      const reply = parseJson(text) as Reply | undefined;
      this.#waiting?.(reply ?? new BackendFailed('Lean did not answer in JSON'));
    }
  }

  /** Kills the process with its children; waiting checks get the fault. */
  #end(fault?: Error): void {
    killGroup(this.#child);
    this.#child = undefined;
    this.#headers.clear();
    if (fault) this.#waiting?.(fault);
  }
}
