import { Worker } from 'node:worker_threads';
import { ThreadCalls } from '../../../shared/scheduling/thread-calls.ts';
import type { DatabaseWrites, ThreadSetup, WriteReply, WriteRequest } from './worker.ts';

const WORKER = new URL('./worker.ts', import.meta.url);

export interface DatabaseThreadSettings {
  readonly folder: string;
  /** True if written data survives a crash of the machine. */
  readonly synced?: boolean;
}

/** Writes to the database in a thread, one after another. The thread is started for the first write, and after its end. */
export class DatabaseThread {
  readonly #settings: DatabaseThreadSettings;
  readonly #sealed = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #thread: ThreadCalls | undefined;

  constructor(settings: DatabaseThreadSettings) {
    this.#settings = settings;
  }

  /**
   * Writes everything or nothing.
   * @throws Error of SQLite; Error when the thread ends meanwhile
   */
  async write<N extends keyof DatabaseWrites>(
    name: N,
    ...given: Parameters<DatabaseWrites[N]>
  ): Promise<ReturnType<DatabaseWrites[N]>> {
    if (!this.#thread || this.#thread.hasEnded) this.#thread = this.#start();
    const { worker } = this.#thread;
    return this.#thread.call(id => {
      worker.postMessage({ id, name, given } satisfies WriteRequest);
      // The process stays alive while a caller waits.
      worker.ref();
    });
  }

  #start(): ThreadCalls {
    const { folder, synced = false } = this.#settings;
    const workerData: ThreadSetup = { folder, synced, sealed: this.#sealed };
    const worker = new Worker(WORKER, { workerData, name: 'database' });
    const thread = new ThreadCalls(worker, 'the thread of the database');
    worker.on('message', ({ id, ...reply }: WriteReply) => {
      thread.settle(id, reply);
      if (thread.pending === 0) worker.unref();
    });
    return thread;
  }

  /** Stops writing changes of sessions, including requested ones; at most one write is in progress. */
  seal(): void {
    Atomics.store(this.#sealed, 0, 1);
  }

  /** Ends the thread once everything requested is done. */
  async close(): Promise<void> {
    if (!this.#thread || this.#thread.hasEnded) return;
    const { worker } = this.#thread;
    await this.write('close').catch(() => undefined);
    this.#thread = undefined;
    await worker.terminate();
  }
}
