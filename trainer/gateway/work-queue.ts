import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ProgramFault } from '../rollout/episode-agent.ts';
import { ApiError, unauthorized } from '../serve/openai/errors.ts';
import { holdsKey, type Rollout } from './rollout.ts';

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
    const own = Object.entries(process.env).filter(([name]) => !PRIVATE.test(name));
    this.#process = spawn(file, args, {
      env: { ...Object.fromEntries(own), ...variables, [MARK]: this.#mark },
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

/** A timer that can be paused; calls back after running this long. */
export class Countdown {
  readonly #ms: number;
  readonly #over: () => void;
  #left: number;
  #startedAt = 0;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param over called once, and again only after a {@link reset} */
  constructor(ms: number, over: () => void) {
    this.#ms = ms;
    this.#over = over;
    this.#left = ms;
  }

  run(): void {
    if (this.#timer || this.#isOver) return;
    this.#startedAt = performance.now();
    this.#timer = setTimeout(() => {
      this.#isOver = true;
      this.#over();
    }, this.#left);
  }

  pause(): void {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#left = Math.max(0, this.#left - (performance.now() - this.#startedAt));
  }

  /** Pauses it and restores its whole time. */
  reset(): void {
    this.pause();
    this.#left = this.#ms;
    this.#isOver = false;
  }
}

/** Wait of `POST /rollouts/next` for a task before it answers 204. */
const POLL_MS = 20_000;
const KEY_BYTES = 24;
/** Pause between two starts of a worker that ends at once. */
const RESTART_MS = 500;
const HTTP_NO_CONTENT = 204;
const LONGEST_COMPLAINT = 2000;

/** A rollout as a program receives it: the same fields that a one-episode program has in its variables. */
export type Assignment = { readonly [name: string]: string };

interface Waiting {
  readonly rollout: Rollout;
  readonly assignment: Assignment;
  /** True once a worker has taken it. */
  readonly begun: (worker: Worker) => void;
}

/** A program that stays and asks for one rollout after another. */
interface Worker {
  readonly key: string;
  program: Program;
  /** Open requests for a rollout. */
  polls: number;
  /** True if it has taken a rollout since it was started. */
  hasPlayed: boolean;
  /** Time that it may stay silent although rollouts wait. */
  readonly patience: Countdown;
  /** The reason why it is being stopped. */
  fault?: ProgramFault;
}

/** Command and limits of workers. */
export interface WorkerSettings {
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** Long-running programs that ask for one episode after another; 0: one program is started per episode. */
  readonly workers: number;
  /** For one episode, and for the silence of a worker while rollouts wait. */
  readonly timeoutMs: number;
}

/** Gives rollouts to long-running programs. */
export class WorkQueue {
  readonly #workers: Worker[] = [];
  readonly #waiting: Waiting[] = [];
  /** Rollouts that workers play, by id. */
  readonly #held = new Map<string, { readonly rollout: Rollout; readonly worker: Worker }>();
  #changed = Promise.withResolvers<void>();
  #closed = false;

  /** Starts workers, and restarts one that ends. One that asks for nothing although rollouts wait is stopped. */
  start(settings: WorkerSettings, variables: Assignment): void {
    for (let i = 0; i < settings.workers; i++) void this.#keep(settings, variables);
  }

  /** Lets a worker play a rollout. Resolves with the worker once it has taken it. */
  async play(rollout: Rollout, assignment: Assignment): Promise<Worker> {
    const { promise, resolve } = Promise.withResolvers<Worker>();
    this.#waiting.push({ rollout, assignment, begun: resolve });
    this.#change();
    void rollout.ended.catch(() => {}).finally(() => this.#watch());
    const worker = await promise;
    worker.program.ended.then(
      () => rollout.end(new ProgramFault('its worker ended in the middle of the episode')),
      error => rollout.end(error as ProgramFault),
    );
    return worker;
  }

  /** @throws ApiError 401 for any key but a worker's */
  checkWorker(authorization: string | undefined): void {
    if (!this.#workers.some(({ key }) => holdsKey(authorization, key))) {
      throw unauthorized('only a worker of this run may ask for rollouts');
    }
  }

  /** `POST /rollouts/next` and `POST <prefix>/finish`. */
  addRoutes(app: FastifyInstance, prefix: string): void {
    app.post('/rollouts/next', async (request, reply) => {
      const worker = this.#workerOf(request);
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      const taken = await this.#ask(worker, gone.signal);
      if (!taken) return reply.code(HTTP_NO_CONTENT).send();
      return { id: taken.rollout.id, ...taken.assignment };
    });
    app.post(`${prefix}/finish`, async request => {
      const { id } = request.params as { readonly id: string };
      const held = this.#held.get(id);
      if (held?.worker !== this.#workerOf(request))
        throw new ApiError(404, 'this worker plays no such rollout');
      const { error } = (request.body ?? {}) as { readonly error?: unknown };
      if (error === undefined || error === null) held.rollout.end();
      else held.rollout.end(new ProgramFault(`it reports: ${String(error).slice(0, LONGEST_COMPLAINT)}`));
      return { finished: true };
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#change();
    await Promise.all(this.#workers.map(({ program }) => program.stop()));
  }

  async #keep({ command, timeoutMs }: WorkerSettings, variables: Assignment): Promise<void> {
    const key = randomBytes(KEY_BYTES).toString('base64url');
    const begin = () => new Program(command, { ...variables, RAGEN_WORKER_TOKEN: key });
    const patience = new Countdown(timeoutMs, () => {
      const why = `its worker asked for nothing for ${timeoutMs / 1000} s while episodes waited (rollout.agent.timeout_s)`;
      worker.fault = worker.program.fault(why);
      void worker.program.stop();
    });
    const worker: Worker = { key, program: begin(), polls: 0, hasPlayed: false, patience };
    this.#workers.push(worker);
    for (;;) {
      this.#watch();
      const fault = await worker.program.ended.then(
        () => new ProgramFault('its worker ended'),
        error => error as ProgramFault,
      );
      if (this.#closed) return;
      // A command that never works must not be waited for; once it has played, its end concerns only its own rollout.
      if (worker.fault || !worker.hasPlayed)
        this.#waiting.find(({ rollout }) => rollout.isOpen)?.rollout.end(worker.fault ?? fault);
      await pause(RESTART_MS);
      if (this.#closed) return;
      worker.program = begin();
      worker.fault = undefined;
      worker.hasPlayed = false;
      patience.reset();
    }
  }

  /** The next rollout for a worker, which plays it from then on; undefined when there is none for a while. */
  async #ask(worker: Worker, gone: AbortSignal): Promise<Waiting | undefined> {
    worker.polls++;
    worker.patience.reset();
    try {
      const taken = await this.#take(gone);
      if (!taken) return undefined;
      const { rollout } = taken;
      taken.begun(worker);
      worker.hasPlayed = true;
      this.#held.set(rollout.id, { rollout, worker });
      void rollout.ended
        .catch(() => {})
        .finally(() => {
          this.#held.delete(rollout.id);
          worker.patience.reset();
          this.#watch();
        });
      return taken;
    } finally {
      worker.polls--;
      this.#watch();
    }
  }

  /** Counts the time of workers that neither play nor ask while rollouts wait. */
  #watch(): void {
    const wanted = !this.#closed && this.#waiting.some(({ rollout }) => rollout.isOpen);
    const busy = new Set([...this.#held.values()].map(({ worker }) => worker));
    for (const worker of this.#workers) {
      if (wanted && worker.polls === 0 && !busy.has(worker)) worker.patience.run();
      else worker.patience.pause();
    }
  }

  /** The next rollout that is still open; undefined when there is none for a while. */
  async #take(gone: AbortSignal): Promise<Waiting | undefined> {
    const until = performance.now() + POLL_MS;
    while (!gone.aborted && !this.#closed) {
      const next = this.#waiting.shift();
      if (next?.rollout.isOpen) return next;
      if (next) continue;
      const left = until - performance.now();
      if (left <= 0) return undefined;
      const timer = new AbortController();
      await Promise.race([
        this.#changed.promise,
        pause(left, undefined, { signal: AbortSignal.any([timer.signal, gone]) }).catch(() => {}),
      ]);
      timer.abort();
    }
    return undefined;
  }

  #workerOf({ headers }: FastifyRequest): Worker {
    return this.#workers.find(({ key }) => holdsKey(headers.authorization, key))!;
  }

  #change(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
    this.#watch();
  }
}
