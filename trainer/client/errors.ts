import { printable } from '../../shared/printable.ts';
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
