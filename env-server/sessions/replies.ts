import type { Json } from '../../shared/json.ts';
import type { MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem } from '../../shared/problems.ts';
import type { StoredReply } from './stored-session.ts';

/** Keys of a request that do not belong to what it asks for. */
const ENVELOPE = new Set(['id', 'op', 'request_key', 'timeout_ms']);

/** Of replies that came from the store; requests are numbered from 1. */
const NO_REQUEST = 0;

interface Entry {
  readonly operation: string;
  /** What was asked, or its fingerprint. */
  readonly asked: object | string;
  /** Number of the request it came in; replies of one request are never dropped for one another. */
  readonly request: number;
  /** A promise while the request is in flight. */
  reply: MaybePromise<unknown>;
  /** It was written to the store. */
  kept: boolean;
}

/**
 * Replies by request key, so that a repeated request changes nothing. Keeps at least the last `capacity`
 * replies, and all those of the latest request. A request still in flight shares its reply; one that failed is forgotten.
 */
export class ReplyMemory {
  readonly #capacity: number;
  readonly #entries = new Map<string, Entry>();

  constructor(capacity: number, stored: readonly StoredReply[] = []) {
    this.#capacity = capacity;
    for (const { key, operation, asked, reply } of stored) {
      this.#entries.set(key, { operation, asked, request: NO_REQUEST, reply, kept: true });
    }
  }

  /**
   * The replies that are there, oldest first; not those still in flight.
   * @param which `fresh` leaves out those that `kept` was told of
   */
  stored(which: 'all' | 'fresh' = 'all'): StoredReply[] {
    const replies: StoredReply[] = [];
    for (const [key, { operation, asked, reply, kept }] of this.#entries) {
      if (reply instanceof Promise || (kept && which === 'fresh')) continue;
      replies.push({ key, operation, asked: fingerprint(asked), reply: reply as Json });
    }
    return replies;
  }

  /** These were written to the store. */
  kept(replies: readonly StoredReply[]): void {
    for (const { key, reply } of replies) {
      const entry = this.#entries.get(key);
      if (entry?.reply === reply) entry.kept = true;
    }
  }

  /**
   * The stored reply, or what `work` returns, stored.
   * @throws Problem `key_reused` when the key was used for something else
   */
  once(
    key: string,
    operation: string,
    input: object,
    request: number,
    work: () => MaybePromise<unknown>,
  ): MaybePromise<unknown> {
    const known = this.#entries.get(key);
    if (known) {
      if (known.operation !== operation || fingerprint(known.asked) !== fingerprint(input)) {
        throw new Problem('key_reused', `request key "${key}" was used for another ${known.operation}`);
      }
      return known.reply;
    }
    const reply = work();
    const entry: Entry = { operation, asked: input, request, reply, kept: false };
    this.#entries.set(key, entry);
    this.#trim(request);
    if (reply instanceof Promise) {
      reply.then(
        value => {
          entry.reply = value;
        },
        () => {
          if (this.#entries.get(key) === entry) this.#entries.delete(key);
        },
      );
    }
    return reply;
  }

  #trim(request: number): void {
    for (const [key, entry] of this.#entries) {
      if (this.#entries.size <= this.#capacity || entry.request === request) return;
      this.#entries.delete(key);
    }
  }
}

function fingerprint(input: object | string): string {
  if (typeof input === 'string') return input;
  const asked = Object.entries(input)
    .filter(([key]) => !ENVELOPE.has(key))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(asked);
}
