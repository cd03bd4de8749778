import { availableParallelism } from 'node:os';
import {
  findIsolation,
  type Isolation,
  type Job,
  type RunResult,
  Sandbox,
  SandboxFailed,
} from './sandbox.ts';

/** Programs that one sandbox runs before another takes its place. */
const JOBS_PER_SANDBOX = 100;
/** Tries to run a program when sandboxes break under it. */
const MOST_TRIES = 2;

interface Worker {
  readonly sandbox: Sandbox;
  jobs: number;
}

/** Sandboxes that wait for programs, at most one for each processor; further programs queue up. */
export class SandboxPool {
  readonly #size: number;
  readonly #idle: Worker[] = [];
  readonly #queue: (() => void)[] = [];
  #busy = 0;
  #starting = 0;
  #stopped = false;

  constructor(size = availableParallelism()) {
    this.#size = size;
  }

  /** Starts sandboxes ahead of their use. @throws SandboxFailed where there is no isolation */
  async warm(): Promise<Isolation> {
    const isolation = await findIsolation();
    while (!this.#stopped && this.#idle.length + this.#busy + this.#starting < this.#size) {
      this.#starting++;
      Sandbox.start(isolation.command)
        .then(
          sandbox => this.#release({ sandbox, jobs: 0 }),
          () => undefined,
        )
        .finally(() => {
          this.#starting--;
        });
    }
    return isolation;
  }

  /** @throws SandboxFailed when sandboxes break or there is no isolation, never for what a program does */
  async run(job: Job): Promise<readonly RunResult[]> {
    for (let attempt = 1; ; attempt++) {
      const worker = await this.#acquire();
      try {
        worker.jobs++;
        return await worker.sandbox.run(job);
      } catch (error) {
        worker.sandbox.stop();
        if (!(error instanceof SandboxFailed) || attempt === MOST_TRIES || this.#stopped) throw error;
      } finally {
        this.#busy--;
        this.#release(worker);
      }
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const { sandbox } of this.#idle.splice(0)) sandbox.stop();
  }

  async #acquire(): Promise<Worker> {
    const { command } = await findIsolation();
    while (this.#busy >= this.#size) await new Promise<void>(resolve => this.#queue.push(resolve));
    this.#busy++;
    for (let worker = this.#idle.pop(); worker; worker = this.#idle.pop()) {
      if (!worker.sandbox.isBroken) return worker;
    }
    try {
      return { sandbox: await Sandbox.start(command), jobs: 0 };
    } catch (error) {
      this.#busy--;
      this.#queue.shift()?.();
      throw error;
    }
  }

  #release(worker: Worker): void {
    const { sandbox, jobs } = worker;
    if (this.#stopped || jobs >= JOBS_PER_SANDBOX) sandbox.stop();
    if (!sandbox.isBroken) this.#idle.push(worker);
    this.#queue.shift()?.();
    if (sandbox.isBroken && !this.#stopped) this.warm().catch(() => undefined);
  }
}
