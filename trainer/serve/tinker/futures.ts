import { randomUUID } from 'node:crypto';
import { basename } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ApiError, badRequest } from '../openai/errors.ts';

/** Time that results stay readable after their delivery, because a reply can get lost. */
const KEPT_MS = 600_000;
/** Bytes of results that are kept, about those of an entry itself, and results of a session that wait to be read. */
const KEPT_BYTES = 256 * 2 ** 20;
const ENTRY_BYTES = 1024;
const MAX_UNREAD = 8192;
/** Errors of the engine that a request causes. */
const USER_ERRORS = new Set(['RangeError', 'NotFiniteError', 'ModelConfigError', 'SafetensorsError']);

/** Result of an operation: a message of tinker_public, or JSON. */
export type Result = Uint8Array | object;

/** An operation to submit. */
export interface Submission {
  /** Id of the operation: resubmitted under the same id, it is done once. */
  readonly id: string;
  /** Hash of its content. */
  readonly content: string;
  /** Error if the id belongs to other content. */
  readonly conflict: string;
}

/** The Tinker session that may read a result. */
interface Reader {
  /** Hash of its key. */
  readonly owner: string;
  /** The group that shares the room for results. */
  readonly share: string;
  /** Time of its client's last request. */
  seenAt: number;
}

interface Future {
  readonly reader: Reader;
  readonly content: string;
  readonly settled: Promise<Result>;
  deliveredAt: number | null;
  /** Size of its result; 0 before there is one. */
  bytes: number;
}

/** Submitted operations, until their results have been read. */
export class Futures<Session extends Reader> {
  /** Start of all request ids: those of a server that ran before are not known. */
  readonly #prefix = `${randomUUID()}:`;
  readonly #futures = new Map<string, Future>();
  readonly #unread = new WeakMap<Reader, number>();
  /** Results by share, the oldest first. */
  readonly #results = new Map<string, { bytes: number; readonly ids: Set<string> }>();
  #keptBytes = 0;
  readonly #folders: readonly string[];

  /** @param folders of the server, absolute: replies do not say where they are */
  constructor(folders: readonly string[] = []) {
    this.#folders = folders;
  }

  /**
   * Starts an operation, unless it was submitted before, and keeps its result.
   * @returns its request id
   * @throws ApiError 400 where other content has the id, 429 where too many results of the session wait to be read
   */
  submit(reader: Session, { id: name, content, conflict }: Submission, work: () => Promise<Result>): string {
    const id = this.#prefix + name;
    const known = this.#futures.get(id);
    if (known?.content === content) return id;
    if (known) throw badRequest(conflict, 'seq_id');
    const unread = this.#unread.get(reader) ?? 0;
    if (unread >= MAX_UNREAD) {
      const fault = `${unread} results of this session wait to be read`;
      throw new ApiError(429, `${fault}: read them with retrieve_future`);
    }
    const settled = work().catch(error => failureOf(error, this.#folders));
    this.#unread.set(reader, unread + 1);
    const future = { reader, content, settled, deliveredAt: null, bytes: 0 };
    this.#futures.set(id, future);
    void settled.then(result => this.#keep(id, future, result));
    return id;
  }

  /**
   * Waits for a result.
   * @param owner hash of the key that asks
   * @param ms longest wait
   * @param signal ends the wait
   * @returns undefined where the operation continues
   * @throws ApiError 410 where the result was dropped, 404 where there never was one
   */
  async read(id: string, owner: string, ms: number, signal: AbortSignal): Promise<Result | undefined> {
    const future = this.#futures.get(id);
    if (future?.reader.owner !== owner) {
      const name = JSON.stringify(id.slice(0, 200));
      if (future || !id.startsWith(this.#prefix)) {
        throw new ApiError(404, `there is no request ${name} since the server was started`);
      }
      const why = 'it was read long ago, its session ended, or newer results of its key took its room';
      throw new ApiError(410, `the result of ${name} was dropped: ${why}`);
    }
    future.reader.seenAt = performance.now();
    const over = pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
    const result = await Promise.race([future.settled, over]);
    if (result !== undefined && future.deliveredAt === null && this.#futures.get(id) === future) {
      future.deliveredAt = performance.now();
      this.#unread.set(future.reader, this.#unread.get(future.reader)! - 1);
    }
    return result;
  }

  /** Drops results that were read long ago, and all results of ended sessions. */
  sweep(isGone: (reader: Session) => boolean): void {
    for (const [id, { reader, deliveredAt }] of this.#futures) {
      const old = deliveredAt !== null && performance.now() - deliveredAt > KEPT_MS;
      if (old || isGone(reader as Session)) this.#drop(id);
    }
  }

  /** Counts a result. Without room, the share with the most bytes loses its oldest result. */
  #keep(id: string, future: Future, result: Result): void {
    if (this.#futures.get(id) !== future) return;
    future.bytes = ENTRY_BYTES + (result instanceof Uint8Array ? result.byteLength : 0);
    const { share } = future.reader;
    const own = this.#results.get(share) ?? { bytes: 0, ids: new Set() };
    this.#results.set(share, own);
    own.ids.add(id);
    own.bytes += future.bytes;
    this.#keptBytes += future.bytes;
    while (this.#keptBytes > KEPT_BYTES) {
      const [first, ...others] = this.#results.values();
      const { ids } = others.reduce((most, one) => (one.bytes > most.bytes ? one : most), first);
      const [oldest] = ids;
      if (oldest === id) break;
      this.#drop(oldest);
    }
  }

  #drop(id: string): void {
    const { reader, bytes, deliveredAt } = this.#futures.get(id)!;
    this.#futures.delete(id);
    if (deliveredAt === null) this.#unread.set(reader, this.#unread.get(reader)! - 1);
    const own = this.#results.get(reader.share);
    if (!own?.ids.delete(id)) return;
    own.bytes -= bytes;
    this.#keptBytes -= bytes;
    if (own.ids.size === 0) this.#results.delete(reader.share);
  }
}

/** The reply about a failed operation: the fault of its request, or of the server. */
function failureOf(
  error: unknown,
  folders: readonly string[],
): { readonly error: string; readonly category: 'user' | 'server' } {
  const { message, name, status = 500 } = error as ApiError;
  const shown = folders.reduce((text, folder) => text.replaceAll(folder, basename(folder)), message);
  return { error: shown, category: USER_ERRORS.has(name) || status < 500 ? 'user' : 'server' };
}
