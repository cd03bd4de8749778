import type { GroupPlan } from '../tag.ts';

/** Groups of a tag in a collection. */
interface TagGroups {
  open: number;
  /** Groups that have not ended, open or not begun. */
  left: number;
  completed: number;
}

/**
 * Ends the wait for a service that is away, so that it does not block the groups of other environments: its groups are given up
 * once a request has waited for the limit and no open group plays. Where all tags wait, or there is one alone, the wait continues.
 */
export class OutageLimit {
  readonly #limitMs: number;
  readonly #groups = new Map<string, TagGroups>();
  /** Tags with a request that has waited for the limit. */
  readonly #late = new Set<string>();
  readonly #givenUp = new Set<string>();

  /** @param limitMs milliseconds from the first failure of a request */
  constructor(plans: readonly GroupPlan[], limitMs: number) {
    this.#limitMs = limitMs;
    for (const [tag, { length: left }] of Map.groupBy(plans, plan => plan.tag)) {
      this.#groups.set(tag, { open: 0, left, completed: 0 });
    }
  }

  opened(tag: string): void {
    this.#of(tag).open++;
  }

  ended(tag: string, isCompleted: boolean): void {
    const groups = this.#of(tag);
    groups.open--;
    groups.left--;
    if (!isCompleted) return;
    groups.completed++;
    this.#late.delete(tag);
  }

  /** True while a request of the tag waits for its service, which it has done for so many milliseconds. */
  mayWait(tag: string, waitedMs: number): boolean {
    if (this.#givenUp.has(tag)) return false;
    if (waitedMs < this.#limitMs) return true;
    this.#late.add(tag);
    const others = [...this.#groups].filter(([name]) => !this.#late.has(name));
    const isPlayed = others.some(([, { open }]) => open > 0);
    const hasOthers = others.some(([, { left, completed }]) => left > 0 || completed > 0);
    if (isPlayed || !hasOthers) return true;
    this.#givenUp.add(tag);
    return false;
  }

  #of(tag: string): TagGroups {
    return this.#groups.get(tag)!;
  }
}
