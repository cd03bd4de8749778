import { Problem } from '../../../problems.ts';

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

interface WaitingJob {
  take(slot: number): void;
}

interface Owner {
  /** Slots that it holds. */
  held: number;
  readonly waiting: Set<WaitingJob>;
}

/**
 * Shares slots out among owners. One owner alone may hold all of the common slots, but an owner who holds none finds a guest
 * slot even then; so nobody waits for what another owner runs unless very many owners run something. Where several wait,
 * the one that holds least comes first, and among equals the one that ran longest ago.
 */
export class FairQueue {
  readonly #limits: QueueLimits;
  /** Those that hold slots or wait, in order of their last turns. */
  readonly #owners = new Map<string, Owner>();
  /** Slots that are free; the last is taken first. */
  readonly #free: number[];
  #held = 0;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
    this.#free = Array.from({ length: limits.slots + limits.guestSlots }, (_, slot) => slot).reverse();
  }

  /** Slots that are taken. */
  get held(): number {
    return this.#held;
  }

  /**
   * A slot for this owner, at once or when its turn comes.
   * @throws Problem `too_many_requests`, `environment_busy`
   */
  async acquire(name: string): Promise<number> {
    const owner = this.#owners.get(name) ?? { held: 0, waiting: new Set() };
    this.#owners.set(name, owner);
    if (owner.waiting.size === 0 && this.#mayTake(owner)) return this.#take(name, owner);
    const { queueLength, queueSeconds } = this.#limits;
    if (owner.waiting.size >= queueLength) {
      throw new Problem(
        'too_many_requests',
        `${queueLength} programs of this token wait already, the most that may`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    return new Promise((resolve, reject) => {
      const waiting: WaitingJob = {
        take: slot => {
          clearTimeout(timer);
          resolve(slot);
        },
      };
      const timer = setTimeout(() => {
        owner.waiting.delete(waiting);
        this.#forget(name, owner);
        reject(
          new Problem(
            'environment_busy',
            `the program waited ${queueSeconds} s for others to end, the longest that it may; nothing was done`,
            { retryAfterSeconds: RETRY_AFTER_SECONDS },
          ),
        );
      }, queueSeconds * MS_PER_S).unref();
      owner.waiting.add(waiting);
    });
  }

  /** Gives a slot back, and hands out what is free now. */
  release(name: string, slot: number): void {
    const owner = this.#owners.get(name)!;
    owner.held--;
    this.#held--;
    this.#free.push(slot);
    this.#forget(name, owner);
    for (let next = this.#next(); next; next = this.#next()) {
      const [waiting] = next.owner.waiting;
      next.owner.waiting.delete(waiting);
      waiting.take(this.#take(next.name, next.owner));
    }
  }

  #mayTake({ held }: Owner): boolean {
    const { slots, guestSlots } = this.#limits;
    return this.#held < (held === 0 ? slots + guestSlots : slots);
  }

  #take(name: string, owner: Owner): number {
    owner.held++;
    this.#held++;
    this.#owners.delete(name);
    this.#owners.set(name, owner);
    return this.#free.pop()!;
  }

  #next(): { name: string; owner: Owner } | undefined {
    let next: { name: string; owner: Owner } | undefined;
    for (const [name, owner] of this.#owners) {
      if (owner.waiting.size > 0 && this.#mayTake(owner) && (!next || owner.held < next.owner.held)) {
        next = { name, owner };
      }
    }
    return next;
  }

  #forget(name: string, owner: Owner): void {
    if (owner.held === 0 && owner.waiting.size === 0) this.#owners.delete(name);
  }
}
