/** Member of a {@link RoundRobin}. */
export interface Flow {
  /** It has nothing to do. */
  readonly isEmpty: boolean;
  /** Milliseconds that it may still use before the next flow has its turn; below zero where it used more. */
  deficit: number;
  /** True if it is in one of the lists. */
  isListed: boolean;
}

/**
 * Deficit round robin with priority for flows that come after a pause, as FQ-CoDel does it (RFC 8290, section 4.2): a
 * flow that uses less than its share never waits for those that use more. Costs are known only after the work, so a
 * flow that used too much is passed over until its deficit is paid.
 */
export class RoundRobin<F extends Flow> {
  readonly #quantum: number;
  #fresh: F[] = [];
  #old: F[] = [];
  readonly #onLeave: ((flow: F) => void) | undefined;

  /**
   * @param quantum milliseconds that a flow gets at its turn
   * @param onLeave called with a flow that left the lists because it is empty
   */
  constructor(quantum: number, onLeave?: (flow: F) => void) {
    this.#quantum = quantum;
    this.#onLeave = onLeave;
  }

  /** Lists a flow that has something to do; one that is listed stays where it is. */
  add(flow: F): void {
    if (flow.isListed) return;
    flow.isListed = true;
    flow.deficit = this.#quantum;
    this.#fresh.push(flow);
  }

  /** The flow that has its turn; undefined where all are empty. */
  next(): F | undefined {
    for (;;) {
      const isFresh = this.#fresh.length > 0;
      const list = isFresh ? this.#fresh : this.#old;
      const flow = list[0];
      if (!flow) return undefined;
      if (flow.deficit <= 0) {
        flow.deficit += this.#quantum;
        list.shift();
        this.#old.push(flow);
      } else if (!flow.isEmpty) {
        return flow;
      } else {
        list.shift();
        // One that would leave at once and come back as fresh could take every turn.
        if (isFresh && this.#old.length > 0) this.#old.push(flow);
        else this.#leave(flow);
      }
    }
  }

  #leave(flow: F): void {
    flow.isListed = false;
    this.#onLeave?.(flow);
  }
}
