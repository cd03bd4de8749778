import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { ApiError, badRequest } from '../openai/errors.ts';

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

/** An operation to submit. */
export interface Submission {
  /** Names it: what is submitted again under its id is done once. */
  readonly id: string;
  /** Hash of its content. */
  readonly content: string;
  /** Error where other content has the id. */
  readonly conflict: string;
}

interface Future {
  /** The Tinker session that may read it. */
  readonly owner: object;
  readonly content: string;
  readonly settled: Promise<Result>;
  deliveredAt: number | null;
  /** Size of its delivered result. */
  bytes: number;
}

/** Operations that were submitted, until their results have been read. */
export class Futures {
  /** Start of all request ids: those of a server that ran before are not known. */
  readonly #prefix = `${randomUUID()}:`;
  readonly #futures = new Map<string, Future>();
  readonly #unread = new WeakMap<object, number>();
  /** Request ids of delivered results, the oldest first. */
  readonly #delivered = new Set<string>();
  #keptBytes = 0;

  /**
   * Starts an operation, unless it was submitted before, and keeps its result.
   * @returns its request id
   * @throws ApiError 400 where other content has the id, 429 where too many results of the session wait to be read
   */
  submit(owner: object, { id: name, content, conflict }: Submission, work: () => Promise<Result>): string {
    const id = this.#prefix + name;
    const known = this.#futures.get(id);
    if (known?.content === content) return id;
    if (known) throw badRequest(conflict, 'seq_id');
    const unread = this.#unread.get(owner) ?? 0;
    if (unread >= MAX_UNREAD) {
      const fault = `${unread} results of this session wait to be read`;
      throw new ApiError(429, `${fault}: read them with retrieve_future`);
    }
    const settled = work().catch(failureOf);
    this.#unread.set(owner, unread + 1);
    this.#futures.set(id, { owner, content, settled, deliveredAt: null, bytes: 0 });
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
      const name = JSON.stringify(id.slice(0, 200));
      if (future || !id.startsWith(this.#prefix)) {
        throw new ApiError(404, `there is no request ${name} since the server was started`);
      }
      const why = 'it was read long ago, or its session ended';
      throw new ApiError(410, `the result of ${name} was dropped: ${why}`);
    }
    const over = pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
    const result = await Promise.race([future.settled, over]);
    if (result !== undefined && future.deliveredAt === null && this.#futures.get(id) === future) {
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
