import { deliverAll, type PendingTurns, type Reply } from './pending-turns.ts';
import type { SegmentWriter } from './segment-writer.ts';

export interface UnsyncedTurnsParts {
  readonly segments: SegmentWriter;
  readonly onSynced: () => void;
  /** After it the kernel may have dropped what was written, and says so only once: `takeBack` what is there. */
  readonly onFailed: (error: unknown) => void;
}

/** Turns written to the open segment but not known to be on the disk. One sync at a time; turns share the next one. */
export class UnsyncedTurns {
  readonly #parts: UnsyncedTurnsParts;
  #turns: PendingTurns[] = [];
  /** The sync that is under way. */
  #sync: object | undefined;

  constructor(parts: UnsyncedTurnsParts) {
    this.#parts = parts;
  }

  get isEmpty(): boolean {
    return this.#turns.length === 0;
  }

  /** They have been written. */
  add(turns: PendingTurns): void {
    this.#turns.push(turns);
    if (!this.#sync) this.#begin();
  }

  /** Delivers a reply after all that wait. There must be turns. */
  deliver(reply: Reply): void {
    this.#turns[this.#turns.length - 1].replies.push(reply);
  }

  /** Syncs now, while the event loop waits. */
  syncNow(): void {
    if (this.isEmpty) return;
    this.#sync = undefined;
    try {
      this.#parts.segments.syncNow();
    } catch (error) {
      this.#parts.onFailed(error);
      return;
    }
    this.#synced(this.#turns.length);
  }

  /** The segment is left: gives what is not known to be on the disk. A sync that is under way says nothing any more. */
  takeBack(): PendingTurns[] {
    this.#sync = undefined;
    return this.#turns.splice(0);
  }

  #begin(): void {
    const count = this.#turns.length;
    const sync = {};
    this.#sync = sync;
    this.#parts.segments.sync(error => {
      if (this.#sync !== sync) return;
      this.#sync = undefined;
      if (error) {
        this.#parts.onFailed(error);
        return;
      }
      this.#synced(count);
      if (!this.isEmpty) this.#begin();
    });
  }

  #synced(count: number): void {
    this.#parts.onSynced();
    for (const { replies } of this.#turns.splice(0, count)) deliverAll(replies);
  }
}
