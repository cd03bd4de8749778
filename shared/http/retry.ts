/** Growth of the pauses between attempts. */
export interface Backoff {
  readonly firstMs: number;
  readonly maxMs?: number;
  /** Factor from one pause to the next. */
  readonly factor?: number;
  /** Random share of a pause, from 0 to 1. */
  readonly jitter?: number;
}

/** Longest wait in milliseconds that a server may ask for. */
const MAX_ASKED_MS = 3_600_000;
/** Longest wait of a timer: Node fires a longer one at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Pause after a failed attempt: exponential, with jitter (Brooker, "Exponential Backoff And Jitter", 2015).
 * @param attempt from 1
 * @param random uniform in [0, 1)
 */
export function backoffMs(backoff: Backoff, attempt: number, random = Math.random()): number {
  const { firstMs, maxMs = Number.POSITIVE_INFINITY, factor = 2, jitter = 0 } = backoff;
  return Math.min(maxMs, firstMs * factor ** (attempt - 1)) * (1 - jitter * random);
}

/**
 * The wait in milliseconds that a `Retry-After` asks for, in seconds or as a date, at most an hour; 0 where it asks for
 * none.
 */
export function retryAfterMs(header: string | readonly string[] | undefined, now = Date.now()): number {
  const text = String(header ?? '').trim();
  const ms = /^[\d.]+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - now;
  return ms > 0 ? Math.min(ms, MAX_ASKED_MS) : 0;
}

/**
 * Repeats an attempt until it succeeds.
 * @param pauseAfter milliseconds until the next attempt; throws to give up. Attempts count from 1.
 * @param signal ends the waiting; its reason is thrown
 */
export async function retry<T>(
  work: () => Promise<T>,
  pauseAfter: (error: unknown, attempt: number) => number,
  signal?: AbortSignal,
  wait: typeof pause = pause,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      await wait(pauseAfter(error, attempt), signal);
    }
  }
}

/** Waits; throws the signal's reason as soon as it is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener('abort', abort);
        resolve();
      },
      Math.min(ms, MAX_TIMER_MS),
    );
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/**
 * The work's result, or the signal's reason if the work has not ended `graceMs` after the abort because it waits for an
 * unavailable server, or connects.
 */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal, graceMs = 0): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const refuse = () => reject(signal.reason);
  const abort = () => (graceMs === 0 ? refuse() : void setTimeout(refuse, graceMs).unref());
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
