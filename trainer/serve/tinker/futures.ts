import { randomUUID } from 'node:crypto';
import type { FailedFuture } from '../../tinker/wire.ts';
import { ApiError } from '../openai/errors.ts';

/** Results stay readable so long after they were delivered, since a reply can get lost. */
const KEPT_MS = 600_000;
/** Bytes of delivered results that are kept, about those of an entry itself, and results of a session that wait to be read. */
const KEPT_BYTES = 256 * 2 ** 20;
const ENTRY_BYTES = 1024;
const MAX_UNREAD = 8192;

/** Result of an operation: a message of tinker_public, or JSON. */
export type Result = Uint8Array | object;

interface Future {
  readonly owner: object;
  readonly settled: Promise<Result>;
  deliveredAt: number | null;
  /** Size of its delivered result. */
  bytes: number;
}

/** Operations that were submitted, until their results have been read. */
export class Futures {
  readonly #prefix = randomUUID();
  readonly #futures = new Map<string, Future>();
  readonly #unread = new WeakMap<object, number>();
  /** Request ids of delivered results, the oldest first. */
  readonly #delivered = new Set<string>();
  #keptBytes = 0;
  #count = 0;

  has(id: string): boolean {
    return this.#futures.has(id);
  }

  /**
   * Keeps the result of an operation that runs.
   * @param owner the Tinker session that may read it
   * @returns its request id
   * @throws ApiError 429 where too many results of the session wait to be read
   */
  add(owner: object, work: Promise<Result>): string {
    const settled = work.catch(failureOf);
    const unread = this.#unread.get(owner) ?? 0;
    if (unread >= MAX_UNREAD) {
      throw new ApiError(
        429,
        `${unread} results of this session wait to be read: read them with retrieve_future`,
      );
    }
    this.#unread.set(owner, unread + 1);
    const id = `${this.#prefix}:${this.#count++}`;
    this.#futures.set(id, { owner, settled, deliveredAt: null, bytes: 0 });
    return id;
  }

  /**
   * Waits for a result.
   * @param signal ends the wait
   * @returns undefined where the operation goes on
   * @throws ApiError 410 where the result was dropped, 404 where there never was one
   */
  async read(id: string, owns: (owner: object) => boolean, signal: AbortSignal): Promise<Result | undefined> {
    const future = this.#futures.get(id);
    if (future === undefined || !owns(future.owner)) {
      const [prefix, count] = [id.slice(0, this.#prefix.length), Number(id.slice(this.#prefix.length + 1))];
      if (future === undefined && prefix === this.#prefix && count < this.#count) {
        throw new ApiError(
          410,
          `the result of ${id} was dropped: it was read long ago, or its session ended`,
        );
      }
      throw new ApiError(
        404,
        `there is no request ${JSON.stringify(id.slice(0, 200))} since the server was started`,
      );
    }
    const result = await Promise.race([future.settled, aborted(signal)]);
    if (result !== undefined && future.deliveredAt === null) {
      future.deliveredAt = performance.now();
      future.bytes = ENTRY_BYTES + (result instanceof Uint8Array ? result.byteLength : 0);
      this.#unread.set(future.owner, this.#unread.get(future.owner)! - 1);
      this.#delivered.add(id);
      this.#keptBytes += future.bytes;
      for (const oldest of this.#delivered) {
        if (this.#keptBytes <= KEPT_BYTES || oldest === id) break;
        this.#drop(oldest);
      }
    }
    return result;
  }

  /** Drops results that were read long ago, and all of owners that are gone. */
  sweep(isGone: (owner: object) => boolean): void {
    for (const [id, { owner, deliveredAt }] of this.#futures) {
      const old = deliveredAt !== null && performance.now() - deliveredAt > KEPT_MS;
      if (old || isGone(owner)) this.#drop(id);
    }
  }

  #drop(id: string): void {
    this.#keptBytes -= this.#futures.get(id)!.bytes;
    this.#delivered.delete(id);
    this.#futures.delete(id);
  }
}

/** The reply about an operation that failed: by its request, or by the server. */
function failureOf(error: unknown): FailedFuture {
  const { message, name } = error as Error;
  const byUser =
    error instanceof RangeError ||
    (error instanceof ApiError && error.status < 500) ||
    ['NotFiniteError', 'ModelConfigError', 'SafetensorsError'].includes(name);
  return { error: message, category: byUser ? 'user' : 'server' };
}

/** Resolves when a signal is aborted. Its listener goes with the signal. */
function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise(resolve => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
}
