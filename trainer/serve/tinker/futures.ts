import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { ApiError } from '../openai/errors.ts';

/** Results stay readable so long after they were delivered, since a reply can get lost. */
const KEPT_MS = 600_000;
/** Bytes of delivered results that are kept, about those of an entry itself, and results of a session that wait to be read. */
const KEPT_BYTES = 256 * 2 ** 20;
const ENTRY_BYTES = 1024;
const MAX_UNREAD = 8192;
/** Errors of the engine that a request causes. */
const USER_ERRORS = new Set(['RangeError', 'NotFiniteError', 'ModelConfigError', 'SafetensorsError']);

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
   * Starts an operation and keeps its result.
   * @param owner the Tinker session that may read it
   * @returns its request id
   * @throws ApiError 429 where too many results of the session wait to be read
   */
  add(owner: object, work: () => Promise<Result>): string {
    const unread = this.#unread.get(owner) ?? 0;
    if (unread >= MAX_UNREAD) {
      const fault = `${unread} results of this session wait to be read`;
      throw new ApiError(429, `${fault}: read them with retrieve_future`);
    }
    const settled = work().catch(failureOf);
    this.#unread.set(owner, unread + 1);
    const id = `${this.#prefix}:${this.#count++}`;
    this.#futures.set(id, { owner, settled, deliveredAt: null, bytes: 0 });
    return id;
  }

  /**
   * Waits for a result.
   * @param ms longest wait
   * @param signal ends the wait
   * @returns undefined where the operation goes on
   * @throws ApiError 410 where the result was dropped, 404 where there never was one
   */
  async read(
    id: string,
    owns: (owner: object) => boolean,
    ms: number,
    signal: AbortSignal,
  ): Promise<Result | undefined> {
    const future = this.#futures.get(id);
    if (future === undefined || !owns(future.owner)) {
      const [prefix, number] = id.split(':');
      if (future === undefined && prefix === this.#prefix && Number(number) < this.#count) {
        const why = 'it was read long ago, or its session ended';
        throw new ApiError(410, `the result of ${id} was dropped: ${why}`);
      }
      throw new ApiError(
        404,
        `there is no request ${JSON.stringify(id.slice(0, 200))} since the server was started`,
      );
    }
    const over = pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
    const result = await Promise.race([future.settled, over]);
    if (result !== undefined && future.deliveredAt === null && this.#futures.has(id)) {
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
function failureOf(error: unknown): { readonly error: string; readonly category: 'user' | 'server' } {
  const { message, name, status = 500 } = error as ApiError;
  return { error: message, category: USER_ERRORS.has(name) || status < 500 ? 'user' : 'server' };
}
