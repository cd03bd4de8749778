import { Worker } from 'node:worker_threads';
import type { GenerateRequest, Generation, StreamedToken } from '../../generation/generation.ts';
import type {
  FromWorker,
  SequenceOrder,
  TaskResults,
  ToWorker,
  WorkerSetup,
  WorkerTask,
} from './protocol.ts';

interface Pending {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

/**
 * The main thread's end of a worker: numbered requests and their answers. When the thread dies, all pending and later
 * requests are rejected with the reason. Orders for sequences within one turn of the event loop share one message.
 */
export class WorkerHandle {
  readonly #worker: Worker;
  readonly #index: number;
  readonly #pending = new Map<number, Pending>();
  readonly #watches = new Map<number, (token: StreamedToken) => void>();
  #orders: SequenceOrder[] = [];
  #flushPlanned = false;
  #nextId = 0;
  #runtime = '';
  #closing = false;
  #failure: Error | null = null;
  readonly #exited: Promise<void>;

  private constructor(setup: WorkerSetup) {
    this.#index = setup.index;
    this.#worker = new Worker(new URL('./worker.ts', import.meta.url), { workerData: setup });
    this.#worker.on('message', (message: FromWorker) => this.#receive(message));
    this.#worker.on('error', error => this.#fail(error));
    this.#exited = new Promise(resolve => {
      this.#worker.once('exit', code => {
        this.#fail(new Error(`the thread ended with code ${code}`));
        resolve();
      });
    });
  }

  /** Starts the thread; resolves when it takes requests. */
  static async start(setup: WorkerSetup): Promise<WorkerHandle> {
    const handle = new WorkerHandle(setup);
    handle.#runtime = await handle.#expect<string>(READY);
    return handle;
  }

  /** Readable name of runtime and device. */
  get runtime(): string {
    return this.#runtime;
  }

  /** @param watch called with each token soon after it is sampled */
  generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    const id = ++this.#nextId;
    const result = this.#expect<Generation>(id);
    if (watch !== undefined) this.#watches.set(id, watch);
    this.#order({
      kind: 'generate',
      id,
      request: { ...request, append: Int32Array.from(request.append) },
      watched: watch !== undefined,
    });
    return result;
  }

  release(sequenceId: number): void {
    this.#order({ kind: 'release', sequenceId });
  }

  run<Kind extends WorkerTask['kind']>(
    task: Extract<WorkerTask, { kind: Kind }>,
  ): Promise<TaskResults[Kind]> {
    this.#flush();
    const id = ++this.#nextId;
    const result = this.#expect<TaskResults[Kind]>(id);
    this.#post({ kind: 'task', id, task });
    return result;
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#post({ kind: 'close' });
    await this.#exited;
  }

  /** Ends the thread at once; pending requests fail. */
  async terminate(): Promise<void> {
    await this.#worker.terminate();
  }

  #expect<T>(id: number): Promise<T> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    return new Promise<T>((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as Pending['resolve'], reject });
    });
  }

  #receive(message: FromWorker): void {
    switch (message.kind) {
      case 'ready':
        this.#settle(READY, pending => pending.resolve(message.runtime as never));
        return;
      case 'done':
        this.#settle(message.id, pending => pending.resolve(message.result as never));
        return;
      case 'failed':
        this.#settle(message.id, pending => pending.reject(message.error));
        return;
      case 'generated':
        for (const { id, token } of message.sampled) this.#watches.get(id)?.(token);
        for (const entry of message.finished) {
          this.#settle(entry.id, pending => {
            if ('error' in entry) pending.reject(entry.error);
            else pending.resolve(entry.generation as never);
          });
        }
    }
  }

  #settle(id: number, how: (pending: Pending) => void): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    this.#watches.delete(id);
    if (pending !== undefined) how(pending);
  }

  #fail(cause: Error): void {
    const what = this.#closing
      ? 'the policy was closed'
      : `policy worker ${this.#index} failed: ${cause.message}`;
    this.#failure ??= new Error(what, { cause });
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
    this.#watches.clear();
  }

  #order(order: SequenceOrder): void {
    this.#orders.push(order);
    if (this.#flushPlanned) return;
    this.#flushPlanned = true;
    queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    this.#flushPlanned = false;
    if (this.#orders.length > 0) this.#post({ kind: 'sequences', orders: this.#orders });
    this.#orders = [];
  }

  #post(message: ToWorker): void {
    this.#worker.postMessage(message);
  }
}

const READY = 0;
