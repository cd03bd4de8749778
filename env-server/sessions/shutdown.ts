import { Problem } from '../problems.ts';

const RETRY_AFTER_SECONDS = 1;

/** Stages of a shutdown: each refuses what the one before did, and more. */
const SERVING = 0;
/** No sessions are opened. */
const DRAINING = 1;
/** Nothing is begun. */
const SUSPENDED = 2;
/** Results of operations still in progress are ignored. */
const STOPPED = 3;

/** Says what may still be begun, and waits for what is in progress. */
export class Shutdown {
  #stage = SERVING;
  /** No sessions are opened any more. */
  draining = false;
  /** Nothing is begun any more. */
  suspended = false;
  /** Sessions that are being opened. */
  readonly #openings = new Set<Promise<unknown>>();

  drain(): void {
    this.#reach(DRAINING);
  }

  stop(): void {
    this.#reach(STOPPED);
  }

  /** @throws Problem `draining` when no sessions are opened any more */
  requireOpen(): void {
    this.#require(SERVING);
  }

  /** @throws Problem `draining` when nothing is begun any more */
  requireServing(): void {
    this.#require(DRAINING);
  }

  /** @throws Problem `draining` when what was begun has lost its point */
  requireRunning(): void {
    this.#require(SUSPENDED);
  }

  /** Sessions that are being opened are waited for. */
  follow(opening: Promise<unknown>): void {
    this.#openings.add(opening);
    const done = () => this.#openings.delete(opening);
    opening.then(done, done);
  }

  /**
   * From now on nothing is begun; waits for what is in progress.
   * @param underWay what there is besides sessions that are being opened, looked up again whenever that is done
   * @returns how much of it is still not done after so long; what is done after that counts for nothing
   */
  async suspend(graceMs: number, underWay: () => Promise<unknown>[]): Promise<number> {
    this.#reach(SUSPENDED);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>(resolve => {
      timer = setTimeout(resolve, graceMs, 'late');
    });
    const still = () => [...this.#openings, ...underWay()];
    let waiting = still();
    while (waiting.length > 0) {
      const end = await Promise.race([late, Promise.allSettled(waiting)]);
      waiting = still();
      if (end === 'late') break;
    }
    clearTimeout(timer);
    this.stop();
    return waiting.length;
  }

  #reach(stage: number): void {
    this.#stage = Math.max(this.#stage, stage);
    this.draining = this.#stage >= DRAINING;
    this.suspended = this.#stage >= SUSPENDED;
  }

  #require(latest: number): void {
    if (this.#stage <= latest) return;
    throw new Problem('draining', 'the server is shutting down and begins nothing new', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }
}
