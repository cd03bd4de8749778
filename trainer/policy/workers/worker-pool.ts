import { addMetrics } from '../../algorithms/losses/metric-sums.ts';
import type { LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { GenerateRequest, Generation, StreamedToken } from '../../generation/generation.ts';
import type { SharedParameters } from '../../tensor/runtime/parameter-store.ts';
import { learnedStore } from '../initial-weights.ts';
import { NORM_BLOCK } from '../learning/adamw.ts';
import { DEFAULT_TOKEN_BUDGET, dealPrompts, dealSequences } from '../learning/micro-batches.ts';
import type { GradientReport, GradientTask } from '../learning/train-program.ts';
import { openSequences, workerCount } from '../options.ts';
import type { PolicyParts } from '../parts.ts';
import type { ContinuationRequest, Score, ScoreRequest, ScoreSettings } from '../policy.ts';
import { Homes } from './homes.ts';
import type { WeightSlice, WorkerSetup, WorkerTask } from './protocol.ts';
import { WorkerHandle } from './worker-handle.ts';

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
    const count = this.#workers.length;
    return `${this.#workers[0].runtime}, ${count} worker${count === 1 ? '' : 's'}`;
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
        const task = { kind: 'score', sequences: own, settings, reference } as const;
        const results = await this.#workers[w].run(task);
        share.forEach((index, i) => {
          scores[index] = results[i];
        });
      }),
    );
    return scores;
  }

  /** @see ContinuationRequest */
  async scoreContinuations(
    requests: readonly ContinuationRequest[],
    temperature: number,
  ): Promise<Float64Array[]> {
    const sums = new Array<Float64Array>(requests.length);
    const costs = requests.map(({ prompt, continuations }) =>
      continuations.reduce((tokens, { length }) => tokens + length, prompt.length),
    );
    await Promise.all(
      dealSequences(costs, this.#workers.length).map(async (share, w) => {
        if (share.length === 0) return;
        const own = share.map(index => compactRequest(requests[index]));
        const results = await this.#workers[w].run({
          kind: 'scoreContinuations',
          requests: own,
          temperature,
        });
        share.forEach((index, i) => {
          sums[index] = results[i];
        });
      }),
    );
    return sums;
  }

  /** Computes the gradient of a batch, a share in each worker, and leaves it there. */
  async addGradient(task: GradientTask): Promise<GradientReport> {
    const shares = this.#deal(task.sequences);
    const parts = await Promise.all(
      this.#workers.map((worker, w) => {
        const sequences = shares[w].map(index => compact(task.sequences[index]));
        return worker.run({ kind: 'gradients', task: { ...task, sequences } });
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
    await this.onSlices(slice => ({ kind: 'reduce', slice }));
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
          return worker.run({ kind: 'decompose', task: { ...task, sequences }, into: parts[w] });
        }),
      );
      losses.push(sumMetrics(found));
      const first = index * components.length;
      await this.onSlices(slice => ({ kind: 'collectGradients', slice, parts, vectors, first }));
    }
    const kinds = tasks.flatMap(() => components.map(component => (component === 'task' ? 0 : 1)));
    const products = new Float64Array(count ** 2);
    const found = await Promise.all(
      this.#workers.map((worker, w) =>
        worker.run({ kind: 'gradientProducts', slice: this.#slices[w], vectors, kinds }),
      ),
    );
    for (const part of found) for (let i = 0; i < products.length; i++) products[i] += part[i];
    return { losses, products };
  }

  /** Sends the same task to every worker. */
  all(task: WorkerTask): Promise<unknown> {
    return Promise.all(this.#workers.map(worker => worker.run(task)));
  }

  /** Sends a task to every worker for its slice of the weights. */
  onSlices(make: (slice: WeightSlice) => WorkerTask): Promise<unknown> {
    return Promise.all(this.#workers.map((worker, w) => worker.run(make(this.#slices[w]))));
  }

  /** Ends the threads; pending calls are rejected. */
  async close(): Promise<void> {
    await Promise.all(this.#workers.map(worker => worker.close()));
  }

  #deal(sequences: readonly ScoreRequest[]): number[][] {
    return dealPrompts(sequences, this.#workers.length);
  }
}

function compactRequest({ prompt, continuations }: ContinuationRequest): ContinuationRequest {
  return { prompt: Int32Array.from(prompt), continuations: continuations.map(ids => Int32Array.from(ids)) };
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

/** Initial data of each worker. */
function workerSetups({
  options,
  config,
  runtime,
  maxSequenceLength,
  base,
  norms,
  reference,
  weights,
  first,
  second,
  squares,
}: PolicyParts): WorkerSetup[] {
  const count = workerCount(options, runtime);
  const learned = learnedStore(options, weights);
  const gradients = Array.from({ length: count }, () => learned().share());
  return gradients.map((_, index) => ({
    index,
    config,
    runtime,
    precision: options.precision ?? 'float32',
    valueHead: options.valueHead,
    critic: options.critic ?? false,
    maxSequenceLength,
    maxOpenSequences: Math.ceil(openSequences(options) / count),
    tokenBudget: options.tokenBudget ?? DEFAULT_TOKEN_BUDGET,
    packing: options.packing ?? true,
    recompute: options.recompute ?? false,
    dropout: options.loraDropout ? { probability: options.loraDropout, seed: options.seed } : null,
    threads: options.threads ?? 1,
    grammars: options.grammars ?? {},
    files: options.files ?? {},
    keepStaleCache: options.keepStaleCache ?? false,
    base: base?.share() ?? null,
    norms: norms?.share() ?? null,
    reference: reference?.share() ?? null,
    weights: weights.share(),
    firstMoments: first.share(),
    secondMoments: second.share(),
    gradients,
    squares: squares.buffer,
    version: 0,
  }));
}

/** Splits [0, length) into one slice a worker, on borders of norm blocks. */
function sliceWeights(length: number, workers: number): WeightSlice[] {
  const blocks = Math.ceil(length / NORM_BLOCK);
  const border = (w: number) => Math.min(length, Math.round((blocks * w) / workers) * NORM_BLOCK);
  return Array.from({ length: workers }, (_, w) => ({ start: border(w), end: border(w + 1) }));
}
