import { setImmediate as nextTurn } from 'node:timers/promises';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { type EngineOptions, GenerationEngine } from '../../generation/engine.ts';
import type { GenerateRequest, StreamedToken } from '../../generation/generation.ts';
import { compileGrammar } from '../../generation/grammar.ts';
import { TOKENIZER_FILE, tokenizerFromFiles } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { MuonShare } from '../../tensor/runtime/muon.ts';
import { openRuntime } from '../../tensor/runtime/open-runtime.ts';
import { joinParameters, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Learner, Runtime } from '../../tensor/runtime/runtime.ts';
import { adamwKernel } from '../../tensor/runtime/wasm/kernels.ts';
import { adamwFactors, blockSquares, muonFactors } from '../learning/adamw.ts';
import { DecompositionProgram } from '../learning/decomposition-program.ts';
import { ScoreProgram } from '../learning/score-program.ts';
import { GradientProgram } from '../learning/train-program.ts';
import {
  type FromWorker,
  type NumberedReply,
  type NumberedToken,
  STARTED,
  type ToWorker,
  type WeightSlice,
  type WorkerSetup,
  type WorkerTasks,
} from './protocol.ts';

/**
 * Time that watched tokens wait for more, except the first of a response: reporting and sending one costs more than
 * sampling it.
 */
const WATCH_INTERVAL_MS = 20;

/**
 * One worker thread of a local policy: generates for its sequences, and does its share of scores and updates. It does
 * one thing at a time: tasks in order of arrival, and ticks of the engine in between.
 */
class PolicyWorker implements WorkerTasks {
  readonly #port: MessagePort;
  readonly #setup: WorkerSetup;
  readonly #runtime: Runtime;
  readonly #weights: ParameterStore;
  readonly #moments: { readonly first: ParameterStore; readonly second: ParameterStore };
  /** Learner of a runtime with separate memory, once learning has begun. */
  #learner: Learner | null = null;
  /** Its share of the matrices, once Muon has begun on the processor. */
  #muon: MuonShare | null = null;
  readonly #gradients: readonly Float32Array[];
  readonly #squares: Float64Array;
  readonly #engine: GenerationEngine;
  readonly #gradientProgram: GradientProgram;
  readonly #decompositionProgram: DecompositionProgram;
  readonly #scoreProgram: ScoreProgram;
  /** Null where there are no adapters to exchange. */
  readonly #referenceProgram: ScoreProgram | null;
  readonly #tasks: Task[] = [];
  #finished: NumberedReply[] = [];
  #sampled: NumberedToken[] = [];
  /** True if the tokens in `#sampled` must be reported at once. */
  #urgent = false;
  #reportedAt = 0;
  #held = false;
  #running = false;
  #closing = false;

  constructor(port: MessagePort, setup: WorkerSetup, runtime: Runtime) {
    const flat = (shared: WorkerSetup['weights']) => ParameterStore.fromShared(shared).flat;
    this.#port = port;
    this.#setup = setup;
    this.#runtime = runtime;
    this.#weights = ParameterStore.fromShared(setup.weights);
    const frozen = [setup.base, setup.norms].flatMap(store =>
      store ? [ParameterStore.fromShared(store)] : [],
    );
    const reference = setup.reference && ParameterStore.fromShared(setup.reference);
    this.#moments = {
      first: ParameterStore.fromShared(setup.firstMoments),
      second: ParameterStore.fromShared(setup.secondMoments),
    };
    this.#gradients = setup.gradients.map(flat);
    this.#squares = new Float64Array(setup.squares);
    const grammars = new Map(
      Object.entries(setup.grammars).map(([name, grammar]) => [
        name,
        compileGrammar(name, grammar, setup.config.vocabularySize),
      ]),
    );
    const options = {
      ...setup,
      runtime,
      parameters: frozen.length === 0 ? this.#weights : joinParameters(...frozen, this.#weights),
      trained: this.#weights,
      lossScaled: setup.precision === 'float16',
      grammars,
      ...(TOKENIZER_FILE in setup.files ? codecOf(setup.files) : {}),
    };
    this.#engine = new GenerationEngine(options);
    this.#gradientProgram = new GradientProgram(options);
    this.#decompositionProgram = new DecompositionProgram(options);
    this.#scoreProgram = new ScoreProgram(options);
    this.#referenceProgram = reference
      ? new ScoreProgram({ ...options, valueHead: false, parameters: joinParameters(...frozen, reference) })
      : null;
  }

  take(message: ToWorker): void {
    switch (message.kind) {
      case 'sequences':
        for (const order of message.orders) {
          if (order.kind === 'release') this.#engine.release(order.sequenceId);
          else this.#submit(order.id, order.request, order.watched);
        }
        break;
      case 'task':
        this.#tasks.push(message);
        break;
      case 'close':
        this.#closing = true;
    }
    if (!this.#running) void this.#run();
  }

  #submit(id: number, request: GenerateRequest, watched: boolean): void {
    const fail = (error: Error) => this.#finished.push({ id, error });
    let first = true;
    const watch = (token: StreamedToken) => {
      this.#urgent ||= first;
      first = false;
      this.#sampled.push({ id, token });
    };
    try {
      this.#engine.submit(
        request,
        generation => this.#finished.push({ id, result: generation }),
        fail,
        watched ? watch : undefined,
      );
    } catch (error) {
      fail(error as Error);
    }
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (!this.#closing) {
        const next = this.#tasks.shift();
        if (next !== undefined) await this.#perform(next);
        else if (this.#engine.busy && !this.#held) await this.#tick();
        else break;
        this.#report(false);
        // A tick need not yield to the event loop: messages arrive here.
        await nextTurn();
      }
      this.#report(true);
    } finally {
      this.#running = false;
    }
    if (this.#closing) {
      await this.#runtime.close();
      this.#port.close();
    }
  }

  async #tick(): Promise<void> {
    try {
      await this.#engine.tick();
    } catch (error) {
      this.#engine.failAll(error as Error);
    }
  }

  async #perform({ id, name, args }: Task): Promise<void> {
    try {
      const work = this[name] as (...args: unknown[]) => unknown;
      this.#post({ replies: [{ id, result: await work.apply(this, args) }] });
    } catch (error) {
      this.#post({ replies: [{ id, error: error as Error }] });
    }
  }

  score(...[sequences, { temperature, squares }, reference]: Args<'score'>) {
    return (reference ? this.#referenceProgram! : this.#scoreProgram).run(sequences, temperature, squares);
  }

  async gradients(...[task]: Args<'gradients'>) {
    this.#held = true;
    this.#learner ??=
      (await this.#runtime.memory?.learner({ weights: this.#weights, ...this.#moments })) ?? null;
    return this.#gradientProgram.run(task, this.#learner ?? this.#gradients[this.#setup.index]);
  }

  decompose(...[task, into]: Args<'decompose'>) {
    const totals = into.map(
      ({ component, store }) => [component, ParameterStore.fromShared(store).flat] as const,
    );
    return this.#decompositionProgram.run(task, new Map(totals));
  }

  async reduce({ start, end }: WeightSlice) {
    if (this.#learner !== null) {
      this.#squares[0] = await this.#learner.sumOfSquares();
      return;
    }
    const [sum, ...others] = this.#gradients;
    for (const other of others) for (let i = start; i < end; i++) sum[i] += other[i];
    blockSquares(sum, start, end, this.#squares);
  }

  collectGradients(...[{ start, end }, parts, vectors, first]: Args<'collectGradients'>) {
    const stores = parts.map(own => own.map(({ store }) => ParameterStore.fromShared(store).flat));
    stores[0].forEach(({ length }, component) => {
      const sum = vectorAt(vectors, first + component, length);
      sum.set(stores[0][component].subarray(start, end), start);
      for (const other of stores.slice(1)) {
        const part = other[component];
        for (let i = start; i < end; i++) sum[i] += part[i];
      }
    });
  }

  gradientProducts(...[{ start, end }, vectors, kinds]: Args<'gradientProducts'>) {
    const all = kinds.map((_, index) => vectorAt(vectors, index, this.#weights.flat.length));
    const products = new Float64Array(kinds.length ** 2);
    for (let i = 0; i < kinds.length; i++) {
      for (let j = i; j < kinds.length; j++) {
        if (kinds[i] !== kinds[j]) continue;
        const [a, b] = [all[i], all[j]];
        let sum = 0;
        for (let k = start; k < end; k++) sum += a[k] * b[k];
        products[i * kinds.length + j] = sum;
        products[j * kinds.length + i] = sum;
      }
    }
    return products;
  }

  async apply(...[{ start, end }, step, scale, optimizer]: Args<'apply'>) {
    const adamw = adamwFactors(step, scale, optimizer);
    const muon = muonFactors(scale, optimizer);
    if (this.#learner !== null) return this.#learner.step(adamw, muon);
    const [gradients] = this.#gradients;
    const [first, second] = [this.#moments.first.flat, this.#moments.second.flat];
    const arrays = { weights: this.#weights.flat, gradients, first, second };
    if (muon === undefined) {
      adamwKernel(arrays, adamw, start, end);
      return;
    }
    const count = this.#gradients.length;
    this.#muon ??= await MuonShare.compile(this.#runtime, this.#weights, this.#setup.index, count);
    for (const span of this.#muon.others(start, end)) adamwKernel(arrays, adamw, ...span);
    await this.#muon.step(arrays, muon);
  }

  async download() {
    await this.#learner?.download();
  }

  hold() {
    this.#held = true;
  }

  resume(version: number, weightsReplaced: boolean) {
    this.#held = false;
    if (weightsReplaced || version !== this.#engine.version)
      this.#engine.weightsChanged(version, this.#setup.keepStaleCache && !weightsReplaced);
  }

  /** @param now also reports tokens that could wait */
  #report(now: boolean): void {
    if (this.#finished.length === 0) {
      if (this.#sampled.length === 0) return;
      if (!now && !this.#urgent && performance.now() - this.#reportedAt < WATCH_INTERVAL_MS) return;
    }
    this.#post({ sampled: this.#sampled, replies: this.#finished });
    this.#finished = [];
    this.#sampled = [];
    this.#urgent = false;
    this.#reportedAt = performance.now();
  }

  #post(message: FromWorker): void {
    this.#port.postMessage(message);
  }
}

type Task = Extract<ToWorker, { kind: 'task' }>;
type Args<Name extends keyof WorkerTasks> = Parameters<WorkerTasks[Name]>;

function vectorAt(vectors: SharedArrayBuffer, index: number, length: number): Float32Array {
  return new Float32Array(vectors, index * length * Float32Array.BYTES_PER_ELEMENT, length);
}

/** Encodes and decodes with the tokenizer in these files, which is read at the first request. */
function codecOf(files: WorkerSetup['files']): Pick<EngineOptions, 'encode' | 'decode'> {
  let read: Tokenizer | null = null;
  const tokenizer = () => {
    read ??= tokenizerFromFiles(files, "the policy's files");
    return read;
  };
  return { encode: text => tokenizer().encode(text), decode: ids => tokenizer().decode(ids) };
}

if (parentPort === null) throw new Error('worker.ts runs as a worker thread of LocalPolicy, not by itself');
const setup = workerData as WorkerSetup;
const runtime = await openRuntime(setup.runtime, setup.threads, setup.precision);
const worker = new PolicyWorker(parentPort, setup, runtime);
parentPort.on('message', (message: ToWorker) => worker.take(message));
parentPort.postMessage({
  replies: [{ id: STARTED, result: runtime.description }],
} satisfies FromWorker);
