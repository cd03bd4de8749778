import { Problem } from '../problems.ts';

/** Stages of a shutdown; each rejects more than the one before. */
const SERVING = 0;
/** No sessions are opened. */
const DRAINING = 1;
/** No operations are started. */
const SUSPENDED = 2;
/** Results of operations still in progress are ignored. */
const STOPPED = 3;

/** Decides what may still start, and waits for work in progress. */
export class Shutdown {
  #stage = SERVING;
  /** No sessions are opened any more. */
  draining = false;
  /** Nothing is begun any more. */
  suspended = false;
  /** Sessions being opened. */
  readonly #openings = new Set<Promise<unknown>>();

  drain(): void {
    this.#reach(DRAINING);
  }

  stop(): void {
    this.#reach(STOPPED);
  }

  /** @throws Problem `draining` once no sessions are opened */
  requireOpen(): void {
    this.#require(SERVING);
  }

  /** @throws Problem `draining` once no operations are started */
  requireServing(): void {
    this.#require(DRAINING);
  }

  /** @throws Problem `draining` once results are ignored */
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
   * Stops starting operations and waits for those in progress.
   * @param underWay work other than opening sessions, looked up again whenever it is done
   * @returns the number still unfinished when the time is over; their results are ignored
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
    throw new Problem('draining', 'the server is shutting down and begins nothing new');
  }
}
