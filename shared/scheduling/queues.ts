import { remembered } from '../remembered.ts';

/** Number of taken items after which the array is compacted. */
const MAX_TAKEN = 1024;
/** Capacity that an empty queue keeps. */
const MAX_KEPT = 64;

/** A first-in, first-out queue; returned items go to the front. */
export class Queue<T> {
  /** An empty queue reuses its array, so that a short queue allocates nothing. */
  #items: (T | undefined)[] = [];
  #head = 0;
  #tail = 0;
  length = 0;

  /** The next item; undefined when the queue is empty. */
  get first(): T | undefined {
    return this.#items[this.#head];
  }

  push(item: T): void {
    this.#items[this.#tail++] = item;
    this.length++;
  }

  unshift(item: T): void {
    this.length++;
    if (this.#head > 0) {
      this.#items[--this.#head] = item;
    } else {
      this.#items.unshift(item);
      this.#tail++;
    }
  }

  shift(): T | undefined {
    if (this.length === 0) return undefined;
    this.length--;
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head > MAX_TAKEN) {
      this.#items = this.#items.slice(this.#head, this.#tail);
      this.#tail -= this.#head;
      this.#head = 0;
    } else if (this.#head === this.#tail) {
      this.#head = 0;
      this.#tail = 0;
      if (this.#items.length > MAX_KEPT) this.#items = [];
    }
    return item;
  }
}

/** Limits on concurrent work outside the event loop. */
export interface SlotRules {
  readonly most: number;
  /** Most slots of one owner while this many are free; at least one. Without it an owner may have all. */
  readonly mostOfOwner?: (free: number) => number;
}

interface Owner {
  readonly name: string;
  taken: number;
  /** Groups with a waiter that may get a slot, in the order of their turns. */
  readonly ready: Set<SlotGroup>;
}

/**
 * Limits concurrent work in other threads and at other services. Waiting owners take turns, and within an owner's turn
 * its groups take turns.
 */
export class Slots {
  readonly #rules: SlotRules;
  #free: number;
  readonly #owners = new Map<string, Owner>();
  /** Owners with ready groups, in the order of their turns. */
  readonly #turns = new Set<Owner>();

  constructor(rules: SlotRules) {
    this.#rules = rules;
    this.#free = rules.most;
  }

  /**
   * Work of one owner that shares a limit.
   * @param most slots at a time
   */
  group(owner: string, most = Number.POSITIVE_INFINITY): SlotGroup {
    return new SlotGroup(this, owner, most);
  }

  /** A {@link SlotGroup} adds itself here when it has a waiter and may have another slot. */
  list(group: SlotGroup): void {
    const owner = this.#ownerOf(group.owner);
    owner.ready.add(group);
    this.#turns.add(owner);
    this.#serve();
  }

  /** The group has no waiters left. */
  unlist(group: SlotGroup): void {
    const owner = this.#ownerOf(group.owner);
    owner.ready.delete(group);
    this.#settle(owner);
  }

  /** A slot of the group is free again. */
  free(group: SlotGroup): void {
    const owner = this.#ownerOf(group.owner);
    this.#free++;
    owner.taken--;
    this.#settle(owner);
    this.#serve();
  }

  /** True if a slot that an owner gives back goes to a waiter. */
  isWanted(by: string): boolean {
    return [...this.#turns].some(owner => owner.name === by || this.#mayTake(owner));
  }

  #mayTake({ taken }: Owner): boolean {
    return taken === 0 || taken < (this.#rules.mostOfOwner?.(this.#free) ?? this.#rules.most);
  }

  #serve(): void {
    for (const owner of this.#turns) {
      if (this.#free === 0) return;
      if (!this.#mayTake(owner)) continue;
      const [group] = owner.ready;
      this.#free--;
      owner.taken++;
      // Both move to the end of their lists, and this loop reaches the owner again.
      owner.ready.delete(group);
      this.#turns.delete(owner);
      if (group.grant()) owner.ready.add(group);
      if (owner.ready.size > 0) this.#turns.add(owner);
    }
  }

  #ownerOf(name: string): Owner {
    return remembered(this.#owners, name, () => ({ name, taken: 0, ready: new Set() }));
  }

  #settle(owner: Owner): void {
    if (owner.ready.size > 0) return;
    this.#turns.delete(owner);
    if (owner.taken === 0) this.#owners.delete(owner.name);
  }
}

/** See {@link Slots.group}. */
export class SlotGroup {
  readonly owner: string;
  readonly #slots: Slots;
  readonly #most: number;
  readonly #waiting = new Queue<(granted: boolean) => void>();
  #taken = 0;

  constructor(slots: Slots, owner: string, most: number) {
    this.#slots = slots;
    this.owner = owner;
    this.#most = most;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** The group has no slots and no waiters. */
  get isIdle(): boolean {
    return this.#taken === 0 && this.#waiting.length === 0;
  }

  /**
   * Waits for a slot, which {@link release} returns.
   * @param withinMs the same for all waiters of this group
   * @returns true if there was one in time
   */
  take(withinMs?: number): Promise<boolean> {
    return new Promise(resolve => {
      const watch = withinMs === undefined ? undefined : setTimeout(() => this.#giveUp(), withinMs).unref();
      this.#waiting.push(granted => {
        clearTimeout(watch);
        resolve(granted);
      });
      if (this.#taken < this.#most) this.#slots.list(this);
    });
  }

  /** Works in a slot. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    await this.take();
    try {
      return await work();
    } finally {
      this.release();
    }
  }

  release(): void {
    this.#taken--;
    if (this.#waiting.length > 0) this.#slots.list(this);
    this.#slots.free(this);
  }

  /** Gives a slot to the first waiter; returns true if the group may have another. Only {@link Slots} calls it. */
  grant(): boolean {
    this.#taken++;
    this.#waiting.shift()!(true);
    return this.#waiting.length > 0 && this.#taken < this.#most;
  }

  /** Gives up the first waiter: it has waited longest, so its time is over. */
  #giveUp(): void {
    this.#waiting.shift()?.(false);
    if (this.#waiting.length === 0) this.#slots.unlist(this);
  }
}

/**
 * The work for each item, this many at once, with results in the order of the items. After a failure it starts no more,
 * and waits for the open ones.
 */
export async function mapConcurrently<T, R>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  const lane = async () => {
    for (let i = next++; i < items.length; i = next++) results[i] = await work(items[i]);
  };
  const lanes = Array.from({ length: Math.min(atOnce, items.length) }, lane);
  try {
    await Promise.all(lanes);
  } finally {
    next = items.length;
    await Promise.allSettled(lanes);
  }
  return results;
}
