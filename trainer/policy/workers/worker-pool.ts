import { Worker } from 'node:worker_threads';
import { ThreadCalls } from '../../../shared/scheduling/thread-calls.ts';
import { counted } from '../../../shared/text.ts';
import { addMetrics } from '../../algorithms/losses/metric-sums.ts';
import type { LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { GenerateRequest, Generation, StreamedToken } from '../../generation/generation.ts';
import type { SharedParameters } from '../../tensor/runtime/parameter-store.ts';
import { NORM_BLOCK } from '../learning/adamw.ts';
import { dealPrompts } from '../learning/micro-batches.ts';
import type { GradientReport, GradientTask } from '../learning/train-program.ts';
import type { PolicyParts } from '../parts.ts';
import type { Score, ScoreRequest, ScoreSettings } from '../policy.ts';
import { Homes } from './homes.ts';
import {
  type FromWorker,
  type SequenceOrder,
  type ToWorker,
  type WeightSlice,
  type WorkerSetup,
  type WorkerTasks,
  workerSetups,
} from './protocol.ts';

/**
 * The worker threads of a local policy. Each generating sequence belongs to one of them. Scoring and learning are split
 * among them, and each works on a slice of the shared weights.
 */
export class WorkerPool {
  readonly #workers: readonly WorkerHandle[];
  /** Elements of the learned vector. */
  readonly #length: number;
  readonly #slices: readonly WeightSlice[];
  readonly #squares: Float64Array;
  readonly #homes: Homes;

  private constructor(workers: readonly WorkerHandle[], { weights, squares }: PolicyParts) {
    const { length } = weights.flat;
    this.#workers = workers;
    this.#length = length;
    this.#slices = sliceWeights(length, workers.length);
    this.#squares = squares;
    this.#homes = new Homes(workers.length);
  }

  /**
   * Starts the threads of a policy.
   * @throws Error why one of them cannot start; the others are then ended
   */
  static async start(parts: PolicyParts): Promise<WorkerPool> {
    const started = await Promise.allSettled(workerSetups(parts).map(setup => WorkerHandle.start(setup)));
    const workers = started.filter(result => result.status === 'fulfilled').map(result => result.value);
    const failure = started.find(result => result.status === 'rejected');
    if (failure === undefined) return new WorkerPool(workers, parts);
    await Promise.all(workers.map(worker => worker.terminate()));
    throw failure.reason;
  }

  /** Readable name of the runtime, with the number of workers. */
  get description(): string {
    return `${this.#workers[0].runtime}, ${counted(this.#workers.length, 'worker')}`;
  }

  /** @param watch called with each token soon after it is sampled */
  async generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    return this.#workers[this.#homes.workerFor(request)].generate(request, watch);
  }

  release(sequenceId: number): void {
    const worker = this.#homes.release(sequenceId);
    if (worker !== undefined) this.#workers[worker].release(sequenceId);
  }

  /** A parked sequence stays with its worker, but does not count for new assignments until it continues. */
  park(sequenceId: number): void {
    this.#homes.park(sequenceId);
  }

  /** @param reference scores with the reference's adapters */
  async score(
    sequences: readonly ScoreRequest[],
    settings: ScoreSettings,
    reference: boolean,
  ): Promise<Score[]> {
    const scores = new Array<Score>(sequences.length);
    await Promise.all(
      this.#deal(sequences).map(async (share, w) => {
        if (share.length === 0) return;
        const own = share.map(index => compact(sequences[index]));
        const results = await this.#workers[w].run('score', own, settings, reference);
        share.forEach((index, i) => {
          scores[index] = results[i];
        });
      }),
    );
    return scores;
  }

  /** Computes the gradient of a batch, a share in each worker, and leaves it there. */
  async addGradient(task: GradientTask): Promise<GradientReport> {
    const shares = this.#deal(task.sequences);
    const parts = await Promise.all(
      this.#workers.map((worker, w) => {
        const sequences = shares[w].map(index => compact(task.sequences[index]));
        return worker.run('gradients', { ...task, sequences });
      }),
    );
    const logProbs: Float32Array[] = [];
    parts.forEach((part, w) => {
      part.logProbs.forEach((own, i) => {
        logProbs[shares[w][i]] = own;
      });
    });
    return { metrics: sumMetrics(parts.map(({ metrics }) => metrics)), logProbs };
  }

  /** Adds up the workers' gradients in their order. @returns the norm */
  async reduceGradients(): Promise<number> {
    await this.onSlices((worker, slice) => worker.run('reduce', slice));
    return Math.sqrt(this.#squares.reduce((sum, x) => sum + x, 0));
  }

  /**
   * Gradients of the loss's components over several batches, each split among all workers.
   * @param newStore allocates a worker's gradient
   * @returns the components of each batch's loss, and the inner products of all gradients
   */
  async decompose(
    tasks: readonly GradientTask[],
    components: readonly LossComponent[],
    newStore: () => SharedParameters,
  ): Promise<{ readonly losses: Record<string, number>[]; readonly products: Float64Array }> {
    const parts = this.#workers.map(() => components.map(component => ({ component, store: newStore() })));
    const count = tasks.length * components.length;
    const vectors = new SharedArrayBuffer(count * this.#length * Float32Array.BYTES_PER_ELEMENT);
    const losses: Record<string, number>[] = [];
    for (const [index, task] of tasks.entries()) {
      const shares = this.#deal(task.sequences);
      const found = await Promise.all(
        this.#workers.map((worker, w) => {
          const sequences = shares[w].map(sequence => compact(task.sequences[sequence]));
          return worker.run('decompose', { ...task, sequences }, parts[w]);
        }),
      );
      losses.push(sumMetrics(found));
      const first = index * components.length;
      await this.onSlices((worker, slice) => worker.run('collectGradients', slice, parts, vectors, first));
    }
    const kinds = tasks.flatMap(() => components.map(component => (component === 'task' ? 0 : 1)));
    const products = new Float64Array(count ** 2);
    const found = await this.onSlices((worker, slice) =>
      worker.run('gradientProducts', slice, vectors, kinds),
    );
    for (const part of found) for (let i = 0; i < products.length; i++) products[i] += part[i];
    return { losses, products };
  }

  /** Gives the same task to every worker. */
  all<Name extends keyof WorkerTasks>(name: Name, ...args: Parameters<WorkerTasks[Name]>): Promise<unknown> {
    return Promise.all(this.#workers.map(worker => worker.run(name, ...args)));
  }

  /** Gives every worker a task for its slice of the weights. @returns their results, in order */
  onSlices<T>(give: (worker: WorkerHandle, slice: WeightSlice) => Promise<T>): Promise<T[]> {
    return Promise.all(this.#workers.map((worker, w) => give(worker, this.#slices[w])));
  }

  /** Ends the threads; pending calls are rejected. */
  async close(): Promise<void> {
    await Promise.all(this.#workers.map(worker => worker.close()));
  }

  #deal(sequences: readonly ScoreRequest[]): number[][] {
    return dealPrompts(sequences, this.#workers.length);
  }
}

function sumMetrics(parts: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const part of parts) addMetrics(sums, part);
  return sums;
}

/** The same with copied arrays: posting a view would copy the whole buffer under it. */
function compact<T extends object>(sequence: T): T {
  const copy = Object.entries(sequence).map(([name, value]) => [
    name,
    ArrayBuffer.isView(value) && value.byteLength !== value.buffer.byteLength
      ? (value as Float32Array).slice()
      : value,
  ]);
  return Object.fromEntries(copy) as T;
}

/** Splits [0, length) into one slice a worker, on borders of norm blocks. */
function sliceWeights(length: number, workers: number): WeightSlice[] {
  const blocks = Math.ceil(length / NORM_BLOCK);
  const border = (w: number) => Math.min(length, Math.round((blocks * w) / workers) * NORM_BLOCK);
  return Array.from({ length: workers }, (_, w) => ({ start: border(w), end: border(w + 1) }));
}

/** The main thread's end of a worker. Orders for sequences within one turn of the event loop share one message. */
export class WorkerHandle {
  readonly #calls: ThreadCalls;
  readonly #watches = new Map<number, (token: StreamedToken) => void>();
  #orders: SequenceOrder[] = [];
  #flushPlanned = false;
  #runtime = '';
  #closing = false;
  readonly #exited: Promise<void>;

  private constructor(setup: WorkerSetup) {
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { workerData: setup });
    this.#calls = new ThreadCalls(worker, 'the thread', cause => {
      const what = this.#closing
        ? 'the policy was closed'
        : `policy worker ${setup.index} failed: ${cause.message}`;
      return new Error(what, { cause });
    });
    worker.on('message', (message: FromWorker) => this.#receive(message));
    this.#exited = new Promise(resolve => {
      worker.once('exit', () => resolve());
    });
  }

  /** Starts the thread; resolves when it takes requests. */
  static async start(setup: WorkerSetup): Promise<WorkerHandle> {
    const handle = new WorkerHandle(setup);
    handle.#runtime = await handle.#calls.call<string>(() => {});
    return handle;
  }

  /** Readable name of runtime and device. */
  get runtime(): string {
    return this.#runtime;
  }

  /** @param watch called with each token soon after it is sampled */
  generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    return this.#calls.call(id => {
      if (watch !== undefined) this.#watches.set(id, watch);
      this.#order({
        kind: 'generate',
        id,
        request: { ...request, append: Int32Array.from(request.append) },
        watched: watch !== undefined,
      });
    });
  }

  release(sequenceId: number): void {
    this.#order({ kind: 'release', sequenceId });
  }

  run<Name extends keyof WorkerTasks>(
    name: Name,
    ...args: Parameters<WorkerTasks[Name]>
  ): Promise<Awaited<ReturnType<WorkerTasks[Name]>>> {
    this.#flush();
    return this.#calls.call(id => this.#post({ kind: 'task', id, name, args }));
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#post({ kind: 'close' });
    await this.#exited;
  }

  /** Ends the thread at once; pending requests fail. */
  async terminate(): Promise<void> {
    await this.#calls.worker.terminate();
  }

  #receive({ sampled = [], replies }: FromWorker): void {
    for (const { id, token } of sampled) this.#watches.get(id)?.(token);
    for (const { id, ...reply } of replies) {
      this.#watches.delete(id);
      this.#calls.settle(id, reply);
    }
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
    this.#calls.worker.postMessage(message);
  }
}
