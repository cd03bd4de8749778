import { getHeapStatistics } from 'node:v8';
import { Problem } from '../../problems.ts';

/** Most bytes of sessions in memory; 0 means a share of the heap. */
export interface ByteLimits {
  readonly maxBytes: number;
  readonly maxBytesPerClient: number;
  readonly maxBytesPerSession: number;
}

/** Shares of the heap that limits of 0 mean; the rest is for requests, replies and garbage. */
const HEAP_SHARES = { maxBytes: 0.4, maxBytesPerClient: 0.3, maxBytesPerSession: 1 / 64 } as const;
/**
 * Factor by which open sessions may exceed the limits of their client and server. At those limits nothing more is
 * opened or kept.
 */
const ROOM_TO_PLAY = 1.125;
/** Share of a token's bytes for replies in all sessions; the next two bound each session's part. */
const REPLY_SHARE = 1 / 8;
const MAX_REPLY_BYTES = 64 * 1024;
const MIN_REPLY_BYTES = 4 * 1024;
/** Share of a token's bytes for replies to requests that concern no session yet. */
const CLIENT_REPLY_SHARE = 1 / 32;
const RETRY_AFTER_SECONDS = 1;
const BYTES_PER_KB = 1024;
const BYTES_PER_MB = 1024 * 1024;

/** The limits in force; a limit of 0 is derived from this process's heap limit. */
export function resolveByteLimits(
  limits: ByteLimits,
  heapBytes = getHeapStatistics().heap_size_limit,
): ByteLimits {
  const inForce = (name: keyof ByteLimits) => limits[name] || Math.floor(heapBytes * HEAP_SHARES[name]);
  return {
    maxBytes: inForce('maxBytes'),
    maxBytesPerClient: inForce('maxBytesPerClient'),
    maxBytesPerSession: inForce('maxBytesPerSession'),
  };
}

/** Totals over all sessions of a process, and their limits. */
export class ByteBudget {
  readonly limits: ByteLimits;
  /** Estimated memory of all sessions and remembered replies. */
  used = 0;
  /** Number of open sessions. */
  sessions = 0;

  constructor(limits: ByteLimits) {
    this.limits = resolveByteLimits(limits);
  }

  /** True if this many more bytes would exceed the server's limit. */
  isShort(bytes: number): boolean {
    return this.used + bytes > this.limits.maxBytes;
  }

  /** Most bytes of replies that one session keeps; replies are dropped before sessions. */
  get replyBytesOfSession(): number {
    const share = (this.limits.maxBytesPerClient * REPLY_SHARE) / Math.max(1, this.sessions);
    return Math.max(MIN_REPLY_BYTES, Math.min(MAX_REPLY_BYTES, share));
  }
}

/** Estimated memory of one client. */
export class ByteAccount {
  readonly #budget: ByteBudget;
  readonly limits: ByteLimits;
  used = 0;

  constructor(budget: ByteBudget) {
    this.#budget = budget;
    this.limits = budget.limits;
  }

  get replyBytesOfSession(): number {
    return this.#budget.replyBytesOfSession;
  }

  /** Most bytes of replies to a client's requests that concern no session yet. */
  get replyBytes(): number {
    return Math.max(MIN_REPLY_BYTES, this.limits.maxBytesPerClient * CLIENT_REPLY_SHARE);
  }

  add(bytes: number): void {
    this.used += bytes;
    this.#budget.used += bytes;
  }

  /** The same as an interface for reply memories. */
  grow(bytes: number): void {
    this.add(bytes);
  }

  /**
   * Checks that there is room to open or keep something.
   * @throws Problem `token_budget_exceeded`, `server_budget_exceeded`
   */
  requireRoom(bytes: number): void {
    this.#require(bytes, 1);
  }

  /**
   * The same for the growth of open sessions, which have some extra room.
   * @throws Problem `token_budget_exceeded`, `server_budget_exceeded`
   */
  requireRoomToPlay(bytes: number): void {
    const { limits, used } = this;
    if (used + bytes <= limits.maxBytesPerClient && !this.#budget.isShort(bytes)) return;
    this.#require(bytes, ROOM_TO_PLAY);
  }

  #require(bytes: number, factor: number): void {
    const { limits, used } = this.#budget;
    const { maxBytesPerClient, maxBytes } = limits;
    if (this.used + bytes > maxBytesPerClient * factor) {
      throw new Problem(
        'token_budget_exceeded',
        `your sessions take ${inMb(this.used)} of the ${inMb(maxBytesPerClient)} of memory that one token may have; this needs ${inMb(bytes)} more`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    if (used + bytes > maxBytes * factor) {
      throw new Problem(
        'server_budget_exceeded',
        `all sessions of the server may take ${inMb(maxBytes)} of memory; this needs ${inMb(bytes)} more than is left`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
  }
}

/** `session_budget_exceeded`, with its numbers. */
export function sessionBudgetExceeded(id: string, used: number, bytes: number, most: number): Problem {
  return new Problem(
    'session_budget_exceeded',
    `session ${id} takes ${inMb(used)} of the ${inMb(most)} of memory that one session may have; this needs ${inMb(bytes)} more`,
  );
}

/** Small amounts in kilobytes, because "0.00 MB" says nothing. */
export function inMb(bytes: number): string {
  return bytes < BYTES_PER_MB / 10
    ? `${(bytes / BYTES_PER_KB).toFixed(2)} KB`
    : `${(bytes / BYTES_PER_MB).toFixed(2)} MB`;
}
