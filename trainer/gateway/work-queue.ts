import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ProgramFault } from '../rollout/episode-agent.ts';
import { ApiError, unauthorized } from '../serve/openai/errors.ts';
import { Program } from './program.ts';
import { holdsKey, type Rollout } from './rollout.ts';

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
  readonly command: readonly string[];
  readonly workers: number;
  /** Time that a worker may stay silent although rollouts wait. */
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
