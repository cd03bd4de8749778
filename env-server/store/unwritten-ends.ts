import type { EndedRow } from '../persistence/session-rows.ts';

/** Ended sessions that are remembered at most. */
export const MAX_REMEMBERED = 200_000;

/**
 * Sessions that ended, until the database has their ends. Those that have a row there stay, so that the row is removed
 * and the session never resumed. For the others the database only has to answer their clients after a restart: they are
 * forgotten when all ended sessions are, also where nothing is written while the server runs.
 */
export class UnwrittenEnds implements Iterable<EndedRow> {
  readonly #stored = new Set<EndedRow>();
  /** Ended sessions in the order in which they are to be forgotten. */
  readonly #unstored = new Set<EndedRow>();

  get size(): number {
    return this.#stored.size + this.#unstored.size;
  }

  /**
   * @param isStored the database may have a row of the session
   * @param now in milliseconds of the server's clock, like `forgetAt`
   */
  add(ended: EndedRow, isStored: boolean, now: number): void {
    if (isStored) {
      this.#stored.add(ended);
      return;
    }
    this.#unstored.add(ended);
    for (const oldest of this.#unstored) {
      if (oldest.forgetAt > now && this.#unstored.size <= MAX_REMEMBERED) break;
      this.#unstored.delete(oldest);
    }
  }

  /** The database has them. */
  written(ends: Iterable<EndedRow>): void {
    for (const ended of ends) {
      this.#stored.delete(ended);
      this.#unstored.delete(ended);
    }
  }

  *[Symbol.iterator](): Generator<EndedRow> {
    yield* this.#stored;
    yield* this.#unstored;
  }
}
