import type { MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem } from '../../shared/problems.ts';

/** Keys of a request that do not belong to what it asks for. */
const ENVELOPE = new Set(['id', 'op', 'request_key', 'timeout_ms']);

interface Entry {
  readonly operation: string;
  readonly input: object;
  /** Number of the request it came in; replies of one request are never dropped for one another. */
  readonly request: number;
  readonly reply: MaybePromise<unknown>;
}

/**
 * Replies by request key, so that a repeated request changes nothing. Keeps at least the last `capacity`
 * replies, and all those of the latest request. A request still in flight shares its reply; one that failed is forgotten.
 */
export class ReplyMemory {
  readonly #capacity: number;
  readonly #entries = new Map<string, Entry>();

  constructor(capacity: number) {
    this.#capacity = capacity;
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
      if (known.operation !== operation || fingerprint(known.input) !== fingerprint(input)) {
        throw new Problem('key_reused', `request key "${key}" was used for another ${known.operation}`);
      }
      return known.reply;
    }
    const reply = work();
    const entry: Entry = { operation, input, request, reply };
    this.#entries.set(key, entry);
    this.#trim(request);
    if (reply instanceof Promise) {
      reply.catch(() => {
        if (this.#entries.get(key) === entry) this.#entries.delete(key);
      });
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

function fingerprint(input: object): string {
  const asked = Object.entries(input)
    .filter(([key]) => !ENVELOPE.has(key))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(asked);
}
