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
      );
    }
    if (used + bytes > maxBytes * factor) {
      throw new Problem(
        'server_budget_exceeded',
        `all sessions of the server may take ${inMb(maxBytes)} of memory; this needs ${inMb(bytes)} more than is left`,
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

const NUMBER_BYTES = 12;
const STRING_BYTES = 24;
const ARRAY_BYTES = 32;
const OBJECT_BYTES = 48;
/** Bytes of a reference to an element or a property. */
const SLOT_BYTES = 8;
const OTHER_BYTES = 16;
/** From this length on it pays to check which characters a string has. */
const SHORT_STRING = 128;

/**
 * Estimates the memory of plain data, in bytes; shared parts count each time. It handles data of any depth, and stops
 * early.
 * @param most where to stop: a result of at least this is a lower bound
 */
export function sizeOf(value: unknown, most = Number.POSITIVE_INFINITY): number {
  if (typeof value !== 'object' || value === null) return leafSize(value);
  // Most data holds few objects, so the stack is made only when there are any.
  let stack: object[] | undefined;
  let bytes = 0;
  for (let item: object | undefined = value; item !== undefined && bytes < most; item = stack?.pop()) {
    if (Array.isArray(item)) {
      bytes += ARRAY_BYTES + SLOT_BYTES * item.length;
      for (const element of item) {
        if (typeof element === 'number') continue;
        if (typeof element === 'object' && element !== null) {
          stack ??= [];
          stack.push(element);
        } else bytes += leafSize(element);
      }
    } else if (ArrayBuffer.isView(item)) {
      bytes += OBJECT_BYTES + item.byteLength;
    } else {
      bytes += OBJECT_BYTES;
      for (const key in item) {
        const member = (item as { readonly [key: string]: unknown })[key];
        bytes += SLOT_BYTES + key.length;
        if (typeof member === 'object' && member !== null) {
          stack ??= [];
          stack.push(member);
        } else bytes += leafSize(member);
      }
    }
  }
  return bytes;
}

function leafSize(value: unknown): number {
  switch (typeof value) {
    case 'string':
      return (
        STRING_BYTES + (value.length < SHORT_STRING ? 2 * value.length : Buffer.byteLength(value, 'utf8'))
      );
    case 'number':
      return NUMBER_BYTES;
    case 'boolean':
    case 'undefined':
    case 'object':
      return 0;
    default:
      return OTHER_BYTES;
  }
}

/** Approximate memory of an operation in progress, without its input. */
export const OPERATION_BYTES = 1000;
/** Bytes of pending inputs, for one token and in total, above which further ones are rejected. */
export const MAX_PENDING_BYTES_PER_CLIENT = 64 * BYTES_PER_MB;
export const MAX_PENDING_BYTES = 2 * MAX_PENDING_BYTES_PER_CLIENT;
/** Smaller inputs are accepted above the limits too, unless they would certainly have to wait. */
const SMALL_BYTES = 4096;

/**
 * Memory of the inputs of unfinished operations, by token name. An operation may outlive its request when the client
 * leaves or stops waiting; its input counts until it is done.
 */
export class PendingInputs {
  /** True if some inputs are rejected now. */
  isTight = false;
  #inAll = 0;
  readonly #byClient = new Map<string, number>();

  /** Estimated memory of all of them, in bytes. */
  get bytes(): number {
    return this.#inAll;
  }

  /**
   * Rejects an input when pending inputs take too much memory. Only then is the input measured.
   * @param waits true if its operation would certainly have to wait
   * @throws Problem `too_many_requests`
   */
  requireRoom(client: string, input: unknown, waits: boolean): void {
    if (!this.isTight) return;
    const taken = this.#byClient.get(client) ?? 0;
    const isOwn = taken >= MAX_PENDING_BYTES_PER_CLIENT;
    if (!isOwn && this.#inAll < MAX_PENDING_BYTES) return;
    if (!waits && sizeOf(input, SMALL_BYTES) < SMALL_BYTES) return;
    throw new Problem(
      'too_many_requests',
      isOwn
        ? `operations of yours that are not done hold ${inMb(taken)} of input; one token may have ${inMb(MAX_PENDING_BYTES_PER_CLIENT)}`
        : `operations that are not done hold ${inMb(this.#inAll)} of input, the most that the server takes`,
    );
  }

  /** Counts an input until its operation is done. */
  hold(client: string, input: unknown, operation: Promise<unknown>): void {
    const bytes = OPERATION_BYTES + sizeOf(input);
    this.#count(client, bytes);
    const done = () => this.#count(client, -bytes);
    operation.then(done, done);
  }

  #count(client: string, bytes: number): void {
    this.#inAll += bytes;
    this.isTight = this.#inAll >= MAX_PENDING_BYTES_PER_CLIENT;
    const taken = (this.#byClient.get(client) ?? 0) + bytes;
    if (taken === 0) this.#byClient.delete(client);
    else this.#byClient.set(client, taken);
  }
}
