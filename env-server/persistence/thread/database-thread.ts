import { Worker } from 'node:worker_threads';
import type { DatabaseWrites, ThreadSetup, WriteReply, WriteRequest } from './worker.ts';

const WORKER = new URL('./worker.ts', import.meta.url);

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

export interface DatabaseThreadSettings {
  readonly folder: string;
  /** True if written data survives a crash of the machine. */
  readonly synced?: boolean;
}

/** Writes to the database in a thread, one after another. The thread is started for the first write. */
export class DatabaseThread {
  readonly #settings: DatabaseThreadSettings;
  readonly #sealed = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #requests = 0;

  constructor(settings: DatabaseThreadSettings) {
    this.#settings = settings;
  }

  /**
   * Writes everything or nothing.
   * @throws Error of SQLite; Error when the thread ends meanwhile
   */
  write<N extends keyof DatabaseWrites>(
    name: N,
    ...given: Parameters<DatabaseWrites[N]>
  ): Promise<ReturnType<DatabaseWrites[N]>> {
    this.#worker ??= this.#start();
    const worker = this.#worker;
    const id = ++this.#requests;
    const request: WriteRequest = { id, name, given };
    return new Promise<unknown>((resolve, reject) => {
      worker.postMessage(request);
      this.#waiting.set(id, { resolve, reject });
      // The process stays alive while a caller waits.
      worker.ref();
    }) as Promise<ReturnType<DatabaseWrites[N]>>;
  }

  #start(): Worker {
    const { folder, synced = false } = this.#settings;
    const workerData: ThreadSetup = { folder, synced, sealed: this.#sealed };
    const worker = new Worker(WORKER, { workerData, name: 'database' });
    worker.on('message', (reply: WriteReply) => {
      this.#settle(reply);
      if (this.#waiting.size === 0) worker.unref();
    });
    worker.on('error', error => this.#lose(worker, error));
    worker.on('exit', () => this.#lose(worker, new Error('the thread of the database ended')));
    return worker;
  }

  #settle(reply: WriteReply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    if ('error' in reply) waiting?.reject(Object.assign(reply.error, reply.fields));
    else waiting?.resolve(reply.result);
  }

  /** The next write starts another thread. */
  #lose(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(error);
  }

  /** Stops writing changes of sessions, including requested ones; at most one write is in progress. */
  seal(): void {
    Atomics.store(this.#sealed, 0, 1);
  }

  /** Ends the thread once everything requested is done. */
  async close(): Promise<void> {
    const worker = this.#worker;
    if (!worker) return;
    await this.write('close').catch(() => undefined);
    this.#worker = undefined;
    await worker.terminate();
  }
}
