import { type SlotGroup, Slots } from '../../../../shared/scheduling/slots.ts';
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
