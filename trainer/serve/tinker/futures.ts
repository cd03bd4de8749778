import { EventEmitter, once } from 'node:events';
import { basename } from 'node:path';
import { ApiError, badRequest } from '../openai/errors.ts';

/** Time that results stay readable after their delivery, because a reply can get lost. */
const KEPT_MS = 600_000;
/** Bytes of results that are kept, about those of an entry itself, and results that wait to be read. */
const KEPT_BYTES = 32 * 2 ** 20;
const ENTRY_BYTES = 1024;
const MAX_UNREAD = 8192;
/** Errors of the engine that a request causes. */
const USER_ERRORS = new Set(['RangeError', 'NotFiniteError', 'ModelConfigError', 'SafetensorsError']);

/** Result of an operation: a message of tinker_public, or JSON. */
export type Result = Uint8Array | object;

/** An operation to submit. */
interface Submission {
  /** Resubmitted under the same id, it is done once. */
  readonly id: string;
  /** Hash of its content. */
  readonly content: string;
  /** Error if the id belongs to other content. */
  readonly conflict: string;
}

interface Future {
  readonly content: string;
  /** Emits `done`. */
  readonly events: EventEmitter;
  result?: Result;
  deliveredAt?: number;
  /** Size of its result; 0 before there is one. */
  bytes: number;
}

/** Submitted operations of a session, until their results have been read. */
export class Futures {
  readonly #futures = new Map<string, Future>();
  readonly #folders: readonly string[];
  readonly #prefix: string;
  #unread = 0;
  #bytes = 0;

  /**
   * @param folders of the server, absolute: replies do not say where they are
   * @param prefix of request ids
   */
  constructor(folders: readonly string[], prefix = '') {
    this.#folders = folders;
    this.#prefix = prefix;
  }

  /**
   * Starts an operation, unless it was submitted before, and keeps its result.
   * @returns its request id
   * @throws ApiError 400 where other content has the id, 429 where too many results wait to be read
   */
  submit({ id, content, conflict }: Submission, work: () => Promise<Result>): string {
    const request = this.#prefix + id;
    const known = this.#futures.get(id);
    if (known?.content === content) return request;
    if (known) throw badRequest(conflict, 'seq_id');
    if (this.#unread >= MAX_UNREAD) {
      const fault = `${this.#unread} results of this session wait to be read`;
      throw new ApiError(429, `${fault}: read them with retrieve_future`);
    }
    const settled = work().catch(error => failureOf(error, this.#folders));
    const future: Future = { content, events: new EventEmitter().setMaxListeners(0), bytes: 0 };
    this.#futures.set(id, future);
    this.#unread++;
    void settled.then(result => {
      future.result = result;
      future.events.emit('done');
      this.#count(future, result);
    });
    return request;
  }

  /**
   * Waits for a result.
   * @param ms longest wait
   * @param signal ends the wait
   * @returns undefined where the operation continues
   * @throws ApiError 410 where the result was dropped
   */
  async read(id: string, ms: number, signal: AbortSignal): Promise<Result | undefined> {
    const future = this.#futures.get(id);
    if (!future) {
      const why = 'it was read long ago, or newer results of its session took its room';
      throw new ApiError(410, `the result of ${JSON.stringify(id.slice(0, 200))} was dropped: ${why}`);
    }
    const ends = { signal: AbortSignal.any([signal, AbortSignal.timeout(ms)]) };
    if (future.result === undefined) await once(future.events, 'done', ends).catch(() => {});
    if (future.result !== undefined) this.#deliver(future);
    return future.result;
  }

  /** Drops results that were read long ago. */
  sweep(): void {
    const before = performance.now() - KEPT_MS;
    for (const [id, { deliveredAt = Infinity }] of this.#futures) if (deliveredAt < before) this.#drop(id);
  }

  #deliver(future: Future): void {
    if (future.deliveredAt === undefined) this.#unread--;
    future.deliveredAt ??= performance.now();
  }

  /** Counts a result. Without room, the oldest ones go. */
  #count(future: Future, result: Result): void {
    future.bytes = ENTRY_BYTES + (result instanceof Uint8Array ? result.byteLength : 0);
    this.#bytes += future.bytes;
    for (const [id, old] of this.#futures) {
      if (this.#bytes <= KEPT_BYTES) return;
      if (old.bytes > 0 && old !== future) this.#drop(id);
    }
  }

  #drop(id: string): void {
    const future = this.#futures.get(id)!;
    this.#futures.delete(id);
    this.#deliver(future);
    this.#bytes -= future.bytes;
  }
}

/** The reply about a failed operation: the fault of its request, or of the server. */
function failureOf(error: unknown, folders: readonly string[]): object {
  const { message, name, status = 500 } = error as ApiError;
  const shown = folders.reduce((text, folder) => text.replaceAll(folder, basename(folder)), message);
  return { error: shown, category: USER_ERRORS.has(name) || status < 500 ? 'user' : 'server' };
}
