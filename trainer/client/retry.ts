import { backoffMs, retry } from '../../shared/http/retry.ts';
import { printable } from '../../shared/text.ts';
import type { Schemas } from './operations.ts';

/** The server answered with a problem document. */
export class ServerProblem extends Error {
  readonly server: string;
  /** Requested operation, e.g. `step`. */
  readonly operation: string;
  readonly problem: Schemas['Problem'];
  /** Milliseconds the server asked to wait before trying again. */
  readonly retryAfterMs: number | undefined;

  constructor(server: string, operation: string, problem: Schemas['Problem'], retryAfterMs?: number) {
    const where = (problem.errors ?? []).map(error => ` ${error.pointer}: ${error.detail}.`).join('');
    super(
      printable(
        `${server} answered ${operation} with ${problem.status} ${problem.code}: ${problem.detail}${where}`,
      ),
    );
    this.name = 'ServerProblem';
    this.server = server;
    this.operation = operation;
    this.problem = problem;
    const seconds = problem.retry_after_s;
    this.retryAfterMs = retryAfterMs ?? (seconds === undefined ? undefined : seconds * 1000);
  }

  get code(): Schemas['Problem']['code'] {
    return this.problem.code;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** No connection, or it broke before the reply; whether the request was carried out is unknown. */
export class ConnectionFailed extends Error {
  readonly server: string;

  constructor(server: string, what: string, cause?: unknown) {
    const reason =
      cause instanceof Error ? `: ${cause.message || (cause as NodeJS.ErrnoException).code}` : '';
    super(printable(`${server}: ${what}${reason}`), { cause });
    this.name = 'ConnectionFailed';
    this.server = server;
  }
}

/** The server did not take the connection in time. */
export class ConnectTimeout extends ConnectionFailed {
  constructor(server: string, limitMs: number, cause?: unknown) {
    super(server, `no connection within ${limitMs} ms`, cause);
    this.name = 'ConnectTimeout';
  }
}

/** The connection is open, but the reply did not arrive in time. */
export class ReplyTimeout extends Error {
  readonly server: string;
  readonly operation: string;

  constructor(server: string, operation: string, limitMs: number) {
    super(`${server} did not answer ${operation} within ${limitMs} ms`);
    this.name = 'ReplyTimeout';
    this.server = server;
    this.operation = operation;
  }
}

/** A reply that breaks the contract. */
export class BadReply extends Error {
  readonly server: string;

  constructor(server: string, operation: string, what: string) {
    super(
      printable(
        `${server} answered ${operation} with something that is not a reply: ${what}; is it an environment server?`,
      ),
    );
    this.name = 'BadReply';
    this.server = server;
  }
}

/** A request that failed, with the recommended reaction. */
export abstract class FailedRequest extends Error {
  abstract readonly failure: 'away' | 'lost' | 'final';
  /** Milliseconds the server asked to wait before trying again. */
  readonly retryAfterMs: number | undefined;
}

/** The service of a remote environment does not answer, but the server does. */
const isServiceAway = (error: unknown): boolean =>
  error instanceof ServerProblem && error.code === 'remote_unavailable';

/** Names the cause of a wait: the server, or the service behind one of its environments. */
export function whoIsAway(server: string, error: unknown): string {
  if (isServiceAway(error)) return `the service behind an environment of ${server} does not answer`;
  return error instanceof ServerProblem
    ? `environment server ${server} takes no such requests now`
    : `environment server ${server} does not answer`;
}

/** Names what answers again after that error. */
export const whoIsBack = (server: string, error: unknown): string =>
  isServiceAway(error)
    ? `the service behind an environment of ${server} answers again`
    : `environment server ${server} is back`;

/** The server, or the service behind an environment, was unavailable longer than the client waits. */
export class ServerUnavailable extends Error {
  readonly server: string;
  readonly waitedMs: number;

  constructor(server: string, waitedMs: number, cause: unknown) {
    const who = isServiceAway(cause) ? `the service behind an environment of ${server}` : server;
    super(
      `${who} was not available for ${(waitedMs / 1000).toFixed(1)} s: ${cause instanceof Error ? cause.message : cause}`,
      { cause },
    );
    this.name = 'ServerUnavailable';
    this.server = server;
    this.waitedMs = waitedMs;
  }
}

/** The client was closed while the request was in progress. */
export class ClientClosed extends Error {
  constructor(server: string) {
    super(`the client of ${server} was closed`);
    this.name = 'ClientClosed';
  }
}

/** Reports that a client waits for a server that is down, draining or full. */
export interface WaitEvents {
  readonly onWaiting?: (event: WaitEvent) => void;
  readonly onBack?: (event: { readonly server: string; readonly waitedMs: number }) => void;
  /** An episode of a tag was lost in its course, and is played again. */
  readonly onReplay?: (tag: string, error: Error) => void;
}

export interface WaitEvent {
  readonly server: string;
  readonly error: Error;
  /** Milliseconds since the server became unavailable. */
  readonly waitedMs: number;
}

/** Interval between reports of the same wait. */
const REPORT_EVERY_MS = 1_000;

/**
 * Availability of a server by the results of its requests. Hundreds of requests may wait at once; they are reported as
 * one wait, about once a second, and as one return.
 */
export class Availability {
  readonly #server: string;
  readonly #events: WaitEvents;
  #since: number | undefined;
  /** The server answers; the service behind an environment does not. */
  #isServiceAway = false;
  #reported = 0;

  constructor(server: string, events: WaitEvents) {
    this.#server = server;
    this.#events = events;
  }

  /** True while the server itself does not answer. */
  get away(): boolean {
    return this.#since !== undefined && !this.#isServiceAway;
  }

  /** Notes a failure that requires waiting. Returns for how long the server has been unavailable, in milliseconds. */
  failed(error: Error): number {
    const now = performance.now();
    this.#since ??= now;
    this.#isServiceAway = isServiceAway(error);
    const waitedMs = now - this.#since;
    if (waitedMs === 0 || now - this.#reported >= REPORT_EVERY_MS) {
      this.#reported = now;
      this.#events.onWaiting?.({ server: this.#server, error, waitedMs });
    }
    return waitedMs;
  }

  /** Ends a wait for a service that nobody waits for any more, without a report. */
  givenUp(): void {
    if (this.#isServiceAway) this.#since = undefined;
  }

  /** Notes an answer of the server. */
  answered(): void {
    if (this.#since === undefined) return;
    const waitedMs = performance.now() - this.#since;
    this.#since = undefined;
    this.#events.onBack?.({ server: this.#server, waitedMs });
  }
}

/** Timing and number of a request's attempts. */
export interface RetryPolicy {
  /** Longest first delay; it doubles with each attempt, and the delay taken is a random share of it. */
  readonly baseMs: number;
  readonly maxDelayMs: number;
  /** Longest wait for a server that is down, draining or full. */
  readonly patienceMs: number;
  /** Attempts at a request that was sent but got no usable reply. */
  readonly attempts: number;
  /** Interval between probes of an unavailable server. */
  readonly probeMs: number;
  /** False ends the wait for the service behind an environment, after so many milliseconds; absent: after `patienceMs`. */
  readonly mayWait?: (waitedMs: number) => boolean;
}

export const DEFAULT_RETRY: RetryPolicy = {
  baseMs: 100,
  maxDelayMs: 5_000,
  patienceMs: 600_000,
  attempts: 4,
  probeMs: 1_000,
};

/**
 * `away`: the server, or the service behind an environment, is down, draining or full, and the client waits for it.
 * `lost`: the request may have been carried out and is repeated under its key. `final`: repeating would not help.
 */
export type Failure = 'away' | 'lost' | 'final';

const AWAY_STATUS: ReadonlySet<number> = new Set([429, 502, 503]);

export function classify(error: unknown): Failure {
  if (error instanceof FailedRequest) return error.failure;
  if (error instanceof ConnectionFailed) return 'away';
  if (error instanceof ReplyTimeout) return 'lost';
  if (error instanceof ServerProblem) {
    // The service behind an environment ended the episode; it is available.
    if (error.code === 'remote_failed') return 'final';
    if (AWAY_STATUS.has(error.status)) return 'away';
    return error.problem.retryable ? 'lost' : 'final';
  }
  return 'final';
}

/**
 * Delay before the attempt after `attempt` (from 1): exponential with full jitter, and at least the delay that the
 * server requested, up to the patience.
 * @param random uniform in [0, 1)
 */
export function retryDelay(error: unknown, attempt: number, policy: RetryPolicy, random: number): number {
  const { baseMs: firstMs, maxDelayMs: maxMs } = policy;
  const asked =
    error instanceof ServerProblem || error instanceof FailedRequest ? (error.retryAfterMs ?? 0) : 0;
  const backoff = backoffMs({ firstMs, maxMs, jitter: 1 }, attempt, 1 - random);
  // A hostile server may ask for a century, or for something that is no number.
  return asked > backoff ? Math.min(asked, policy.patienceMs) : backoff;
}

/**
 * Runs `attempt` until it succeeds or its failure is final.
 * @param signal ends the waiting; its reason is thrown
 * @throws ServerUnavailable when the server is unavailable longer than `patienceMs`; otherwise the last error
 */
export async function retrying<T>(
  server: string,
  attempt: () => Promise<T>,
  policy: RetryPolicy,
  availability: Availability,
  signal: AbortSignal,
): Promise<T> {
  let away = 0;
  let lost = 0;
  let serviceSince: number | undefined;
  const pauseAfter = (error: unknown): number => {
    const failure = classify(error);
    if (failure === 'away') {
      const delay = awayDelay(server, error as Error, ++away, policy, availability);
      if (!isServiceAway(error)) return delay;
      serviceSince ??= performance.now();
      const waitedMs = performance.now() - serviceSince;
      if (policy.mayWait?.(waitedMs) === false) throw new ServerUnavailable(server, waitedMs, error);
      // The server may ask for a minute, in which nothing would say that the wait continues.
      return Math.min(delay, policy.maxDelayMs);
    }
    if (failure === 'final' || ++lost >= policy.attempts) throw error;
    return retryDelay(error, lost, policy, Math.random());
  };
  const result = await retry(attempt, pauseAfter, signal);
  if (away > 0) availability.answered();
  return result;
}

/**
 * Delay before the next attempt at an unavailable server.
 * @throws ServerUnavailable after the patience
 */
export function awayDelay(
  server: string,
  error: Error,
  attempt: number,
  policy: RetryPolicy,
  availability: Availability,
): number {
  const waitedMs = availability.failed(error);
  if (waitedMs >= policy.patienceMs) throw new ServerUnavailable(server, waitedMs, error);
  const left = Math.max(1, policy.patienceMs - waitedMs);
  return Math.min(left, retryDelay(error, attempt, policy, Math.random()));
}
