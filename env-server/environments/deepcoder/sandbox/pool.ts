import { remembered } from '../../../../shared/remembered.ts';
import { type SlotGroup, Slots } from '../../../../shared/scheduling/queues.ts';
import { counted } from '../../../../shared/text.ts';
import { Problem } from '../../../problems.ts';
import { findIsolation, type Isolation, sandboxCommand } from './isolation.ts';
import { type Job, type Judge, Sandbox, SandboxFailed } from './sandbox.ts';

/** `Retry-After` of `too_many_requests` and `environment_busy`. */
const RETRY_AFTER_SECONDS = 2;
const MS_PER_S = 1000;

export interface QueueLimits {
  /** Slots that anyone may take. */
  readonly slots: number;
  /** Slots for owners who have none. */
  readonly guestSlots: number;
  /** Most waiting requests of one owner. */
  readonly queueLength: number;
  /** Longest wait in milliseconds. */
  readonly queueSeconds: number;
}

/**
 * Divides slots among owners. One owner alone may hold all common slots, but an owner who holds none finds a guest slot
 * even then; so nobody waits for another owner's programs unless very many owners run some. Owners take turns.
 */
export class FairQueue {
  readonly #limits: QueueLimits;
  readonly #slots: Slots;
  /** Groups of the owners who hold slots or wait. */
  readonly #groups = new Map<string, SlotGroup>();
  /** Free slots; the last is taken first. */
  readonly #free: number[];
  readonly #most: number;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
    this.#most = limits.slots + limits.guestSlots;
    const mostOfOwner = (free: number) => (free > limits.guestSlots ? limits.slots : 0);
    this.#slots = new Slots({ most: this.#most, mostOfOwner });
    this.#free = Array.from({ length: this.#most }, (_, slot) => slot).reverse();
  }

  /** Number of taken slots. */
  get held(): number {
    return this.#most - this.#free.length;
  }

  /**
   * A slot for this owner, at once or in its turn.
   * @throws Problem `too_many_requests`, `environment_busy`
   */
  async acquire(name: string): Promise<number> {
    const group = remembered(this.#groups, name, () => this.#slots.group(name));
    const { queueLength, queueSeconds } = this.#limits;
    const retryAfterSeconds = RETRY_AFTER_SECONDS;
    if (group.waiting >= queueLength) {
      const detail = `this token has ${counted(queueLength, 'program')} waiting already, the most it may have`;
      throw new Problem('too_many_requests', detail, { retryAfterSeconds });
    }
    if (await group.take(queueSeconds * MS_PER_S)) return this.#free.pop()!;
    if (group.isIdle) this.#groups.delete(name);
    const detail = `the program waited ${queueSeconds} s for others to end, the longest that it may; nothing was done`;
    throw new Problem('environment_busy', detail, { retryAfterSeconds });
  }

  /** Returns a slot, and hands out the free ones. */
  release(name: string, slot: number): void {
    const group = this.#groups.get(name)!;
    this.#free.push(slot);
    group.release();
    if (group.isIdle) this.#groups.delete(name);
  }
}

/** Programs that one sandbox runs before it is replaced. */
const JOBS_PER_SANDBOX = 100;
/** Attempts to run a program when sandboxes break under it. */
const MAX_TRIES = 2;

interface Worker {
  readonly sandbox: Sandbox;
  jobs: number;
}

/** Ready sandboxes, at most one for each slot; further programs queue up, with owners taking turns. */
export class SandboxPool {
  readonly #slots: number;
  readonly #queue: FairQueue;
  /** Idle sandboxes by slot, or their startup. */
  readonly #idle = new Map<number, Promise<Worker>>();
  /** Slots in use, and their sandboxes once they have started. */
  readonly #busy = new Map<number, Sandbox | undefined>();
  #stopped = false;

  constructor(limits: QueueLimits) {
    this.#slots = limits.slots;
    this.#queue = new FairQueue(limits);
  }

  /**
   * Starts sandboxes for the common slots in advance.
   * @throws SandboxFailed where there is no isolation
   */
  async warm(): Promise<Isolation> {
    const isolation = await findIsolation();
    for (let slot = 0; slot < this.#slots && !this.#stopped; slot++) {
      if (!this.#idle.has(slot) && !this.#busy.has(slot)) this.#keep(slot, this.#start(isolation, slot));
    }
    return isolation;
  }

  /**
   * Runs a program in its owner's turn and returns the judge's result for each input.
   * @throws SandboxFailed when sandboxes break or there is no isolation, never for the program's own actions; Problem
   * `too_many_requests` or `environment_busy`
   */
  async run<T>(job: Job, owner: string, judge: Judge<T>): Promise<T[]> {
    const isolation = await findIsolation();
    const slot = await this.#queue.acquire(owner);
    this.#busy.set(slot, undefined);
    try {
      for (let attempt = 1; ; attempt++) {
        try {
          return await this.#runIn(slot, isolation, job, judge);
        } catch (error) {
          if (!(error instanceof SandboxFailed) || attempt === MAX_TRIES || this.#stopped) throw error;
        }
      }
    } finally {
      this.#busy.delete(slot);
      this.#queue.release(owner, slot);
    }
  }

  /** Ends all sandboxes, including busy ones. */
  stop(): void {
    this.#stopped = true;
    for (const starting of this.#idle.values()) {
      starting.then(
        ({ sandbox }) => sandbox.stop(),
        () => undefined,
      );
    }
    this.#idle.clear();
    for (const sandbox of this.#busy.values()) sandbox?.stop();
  }

  async #runIn<T>(slot: number, isolation: Isolation, job: Job, judge: Judge<T>): Promise<T[]> {
    const worker = await this.#worker(slot, isolation);
    const { sandbox } = worker;
    this.#busy.set(slot, sandbox);
    try {
      worker.jobs++;
      return await sandbox.run(job, judge);
    } finally {
      if (this.#stopped || worker.jobs >= JOBS_PER_SANDBOX) sandbox.stop();
      if (!sandbox.isBroken) this.#keep(slot, Promise.resolve(worker));
    }
  }

  async #worker(slot: number, isolation: Isolation): Promise<Worker> {
    const idle = this.#idle.get(slot);
    this.#idle.delete(slot);
    const worker = await idle?.catch(() => undefined);
    return worker && !worker.sandbox.isBroken ? worker : this.#start(isolation, slot);
  }

  #keep(slot: number, worker: Promise<Worker>): void {
    this.#idle.set(slot, worker);
    worker.catch(() => {
      if (this.#idle.get(slot) === worker) this.#idle.delete(slot);
    });
  }

  async #start(isolation: Isolation, slot: number): Promise<Worker> {
    const sandbox = await Sandbox.start(sandboxCommand(isolation, slot));
    const [found, proven] = [sandbox.walls.join(', '), isolation.walls.join(', ')];
    if (found === proven && !this.#stopped) return { sandbox, jobs: 0 };
    sandbox.stop();
    throw new SandboxFailed(
      this.#stopped
        ? 'the sandboxes were stopped'
        : `a sandbox came up with the walls ${found}, not with ${proven}`,
    );
  }
}
