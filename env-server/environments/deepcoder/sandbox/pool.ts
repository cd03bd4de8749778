import { type SlotGroup, Slots } from '../../../../shared/scheduling/slots.ts';
import { Problem } from '../../../problems.ts';
import { findIsolation, type Isolation, sandboxCommand } from './isolation.ts';
import { type Job, type Judge, Sandbox, SandboxFailed } from './sandbox.ts';

/** `Retry-After` of `too_many_requests` and `environment_busy`. */
const RETRY_AFTER_SECONDS = 2;
const MS_PER_S = 1000;

export interface QueueLimits {
  /** Slots that anybody may take. */
  readonly slots: number;
  /** Slots for owners who have none. */
  readonly guestSlots: number;
  /** Most that may wait of one owner. */
  readonly queueLength: number;
  /** Longest that anything may wait. */
  readonly queueSeconds: number;
}

/**
 * Shares slots out among owners. One owner alone may hold all of the common slots, but an owner who holds none finds a guest
 * slot even then; so nobody waits for what another owner runs unless very many owners run something. Owners take turns.
 */
export class FairQueue {
  readonly #limits: QueueLimits;
  readonly #slots: Slots;
  /** Groups of the owners who hold slots or wait. */
  readonly #groups = new Map<string, SlotGroup>();
  /** Slots that are free; the last is taken first. */
  readonly #free: number[];
  readonly #most: number;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
    this.#most = limits.slots + limits.guestSlots;
    const mostOfOwner = (free: number) => (free > limits.guestSlots ? limits.slots : 0);
    this.#slots = new Slots({ most: this.#most, mostOfOwner });
    this.#free = Array.from({ length: this.#most }, (_, slot) => slot).reverse();
  }

  /** Slots that are taken. */
  get held(): number {
    return this.#most - this.#free.length;
  }

  /**
   * A slot for this owner, at once or when its turn comes.
   * @throws Problem `too_many_requests`, `environment_busy`
   */
  async acquire(name: string): Promise<number> {
    const group = this.#groups.get(name) ?? this.#slots.group(name);
    this.#groups.set(name, group);
    const { queueLength, queueSeconds } = this.#limits;
    const retryAfterSeconds = RETRY_AFTER_SECONDS;
    if (group.waiting >= queueLength) {
      const detail = `${queueLength} programs of this token wait already, the most that may`;
      throw new Problem('too_many_requests', detail, { retryAfterSeconds });
    }
    if (await group.take(queueSeconds * MS_PER_S)) return this.#free.pop()!;
    if (group.isIdle) this.#groups.delete(name);
    const detail = `the program waited ${queueSeconds} s for others to end, the longest that it may; nothing was done`;
    throw new Problem('environment_busy', detail, { retryAfterSeconds });
  }

  /** Gives a slot back, and hands out what is free now. */
  release(name: string, slot: number): void {
    const group = this.#groups.get(name)!;
    this.#free.push(slot);
    group.release();
    if (group.isIdle) this.#groups.delete(name);
  }
}

/** Programs that one sandbox runs before another takes its place. */
const JOBS_PER_SANDBOX = 100;
/** Tries to run a program when sandboxes break under it. */
const MAX_TRIES = 2;

interface Worker {
  readonly sandbox: Sandbox;
  jobs: number;
}

/** Sandboxes that wait for programs, at most one for each slot; further programs queue up, fairly for their owners. */
export class SandboxPool {
  readonly #slots: number;
  readonly #queue: FairQueue;
  /** Idle sandboxes by slot, or their starting. */
  readonly #idle = new Map<number, Promise<Worker>>();
  /** Slots that programs run in, and their sandboxes as soon as they are there. */
  readonly #busy = new Map<number, Sandbox | undefined>();
  #stopped = false;

  constructor(limits: QueueLimits) {
    this.#slots = limits.slots;
    this.#queue = new FairQueue(limits);
  }

  /** Starts sandboxes for the common slots ahead of their use. @throws SandboxFailed where there is no isolation */
  async warm(): Promise<Isolation> {
    const isolation = await findIsolation();
    for (let slot = 0; slot < this.#slots && !this.#stopped; slot++) {
      if (!this.#idle.has(slot) && !this.#busy.has(slot)) this.#keep(slot, this.#start(isolation, slot));
    }
    return isolation;
  }

  /**
   * Runs a program when its owner's turn comes and gives what the judge made of each result.
   * @throws SandboxFailed when sandboxes break or there is no isolation, never for what a program does; Problem
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

  /** Ends all sandboxes, those that run programs too. */
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
