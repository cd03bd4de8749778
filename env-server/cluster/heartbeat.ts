const MS_PER_S = 1000;
/** Signs of life in the time after which a process without one counts as hung. */
const BEATS = 4;
/** A look that comes so many times its interval after the last one says that the one who looks was held up. */
const LATE = 1.5;

/** Gives a sign of life as long as the event loop turns; never, where `seconds` is 0. */
export function sendHeartbeats(seconds: number, sign: () => void): void {
  if (seconds > 0) setInterval(sign, (seconds * MS_PER_S) / BEATS).unref();
}

/** Notices processes that have given no sign of life for so many seconds. */
export class HeartbeatMonitor {
  readonly #silenceMs: number;
  /** When each was last heard, in milliseconds of `now`. */
  readonly #heard = new Map<number, number>();
  #looked: number;

  constructor(seconds: number, now: number) {
    this.#silenceMs = seconds * MS_PER_S;
    this.#looked = now;
  }

  /** Looks in the intervals in which signs come. */
  watch(onSilent: (index: number) => void): void {
    if (this.#silenceMs === 0) return;
    setInterval(() => {
      for (const index of this.look(performance.now())) onSilent(index);
    }, this.#silenceMs / BEATS).unref();
  }

  heard(index: number, now: number): void {
    this.#heard.set(index, now);
  }

  forget(index: number): void {
    this.#heard.delete(index);
  }

  /** Those that have been silent for too long; they are not named again. */
  look(now: number): number[] {
    const late = now - this.#looked > (LATE * this.#silenceMs) / BEATS;
    this.#looked = now;
    const silent: number[] = [];
    for (const [index, at] of this.#heard) {
      // Signs may wait to be read by one who was held up, or stopped together with all of them.
      if (late) this.#heard.set(index, Math.max(at, now - this.#silenceMs / 2));
      else if (now - at > this.#silenceMs) silent.push(index);
    }
    for (const index of silent) this.#heard.delete(index);
    return silent;
  }
}
