import { randomUUID } from 'node:crypto';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LossBatch, LossProgram } from '../../policy/learning/loss-program.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import type { OptimizerSettings } from '../../policy/policy.ts';
import type { ForwardBackwardOutput } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';
import type { AdapterWeights } from './samplers.ts';

/** Versions of a model that samplers may use, and bytes of all but the newest; of older ones the weights are gone. */
const MAX_SNAPSHOTS = 16;
const MAX_SNAPSHOT_BYTES = 2 ** 30;
/** Numbers that an operation may be ahead of the first that is not over, and operations of a model that wait or run. */
const MAX_AHEAD = 4096;
const MAX_OPEN = 256;

/** A LoRA adapter that a client trains: its operations, one at a time, and the versions that are sampled. */
export class TrainingModel {
  readonly id: string;
  /** Differs between models that had the same id one after the other. */
  readonly key = randomUUID();
  readonly lora: LoraConfig;
  readonly operations: OperationQueue;
  readonly created = new Date().toISOString();
  /** Resolves when the model can be used; rejects with why it cannot be opened, or was closed. */
  policy: Promise<LocalPolicy>;
  readonly #snapshots = new Map<string, Float32Array>();
  /** Times that weights were loaded: the version of the policy is the one in their folder then, which it had before. */
  #loads = 0;

  constructor(id: string, lora: LoraConfig, policy: Promise<LocalPolicy>, gapMs: number) {
    this.id = id;
    this.lora = lora;
    this.policy = policy;
    this.operations = new OperationQueue(gapMs);
  }

  /** Log p of each target, and the loss that the program computes; adds the gradient unless it is forward only. */
  async forwardBackward(
    loss: LossBatch,
    forwardOnly: boolean,
    program: LossProgram,
  ): Promise<ForwardBackwardOutput> {
    const { sequences, settings } = loss;
    const policy = await this.policy;
    const logProbs = forwardOnly
      ? (await policy.score(sequences)).map(score => score.logProbs)
      : await policy.addGradient(sequences, settings);
    const outputs = logProbs.map(own => ({ logprobs: own.slice(1) }));
    return { outputs, metrics: { 'loss:sum': (await program.run(loss, logProbs)).loss } };
  }

  /**
   * One optimizer step on what was added since the last one.
   * @throws RangeError when a gradient of this step is missing: the step is not taken, and the others are dropped
   */
  async step(seqId: number, optimizer: OptimizerSettings): Promise<Record<string, number>> {
    const policy = await this.policy;
    const fault = this.operations.lost.find(one => one.seqId < seqId);
    this.operations.lost = this.operations.lost.filter(one => one.seqId > seqId);
    if (fault) {
      await policy.dropGradients();
      const why = `request ${fault.seqId} of it failed (${fault.why})`;
      throw new RangeError(`the step was not taken and the weights are unchanged: ${why}`);
    }
    return { 'optim/grad_norm': await policy.step(optimizer), 'optim/lr': optimizer.learningRate };
  }

  /**
   * Takes weights from a checkpoint, and the optimizer's state or none, and drops added gradients. Where the folder cannot
   * be loaded, the gradients stay.
   */
  async load(folder: string, optimizer: boolean): Promise<void> {
    const policy = await this.policy;
    await policy.load(folder);
    this.#loads++;
    if (!optimizer) await policy.resetOptimizer();
    await policy.dropGradients();
    this.operations.lost = [];
  }

  /** Writes the adapter, with the optimizer's state or without. */
  async save(folder: string, optimizer: boolean): Promise<void> {
    const policy = await this.policy;
    await (optimizer ? policy.save(folder) : policy.publish(folder));
  }

  /** The weights as they are now; kept for samplers while few are newer. */
  async snapshot(): Promise<AdapterWeights> {
    const version = await this.#currentVersion();
    const load = async (into: LocalPolicy) => {
      await this.policy;
      const kept = this.#snapshots.get(version);
      const why = `the server keeps the ${MAX_SNAPSHOTS} newest of a model, up to 1 GiB`;
      if (!kept) throw badRequest(`this sampler's weights are gone: ${why}`, 'sampling_session_id');
      await into.takeWeights(kept);
    };
    return { key: `${this.id}@${version}`, lora: this.lora, load };
  }

  /** Name of the version of the weights, with a snapshot of them. */
  async #currentVersion(): Promise<string> {
    const policy = await this.policy;
    const nameOf = (version: number) => `${this.#loads}.${version}`;
    const known = nameOf(policy.version);
    if (this.#snapshots.has(known)) return known;
    const { version, flat } = await policy.copyWeights();
    const name = nameOf(version);
    this.#snapshots.set(name, flat);
    let bytes = flat.byteLength * (this.#snapshots.size - 1);
    for (const old of this.#snapshots.keys()) {
      if (this.#snapshots.size <= MAX_SNAPSHOTS && bytes <= MAX_SNAPSHOT_BYTES) break;
      this.#snapshots.delete(old);
      bytes -= flat.byteLength;
    }
    return name;
  }

  /** Lets what runs end, and frees the model. Samplers of its session may keep this object, without weights. */
  async close(reason: string): Promise<void> {
    await this.operations.close(reason);
    const policy = await this.policy.catch(() => undefined);
    this.policy = Promise.reject(badRequest(`this sampler's weights are gone: ${reason}`));
    this.policy.catch(() => {});
    this.#snapshots.clear();
    await policy?.close();
  }
}

interface Operation {
  readonly ordered: boolean;
  run(): Promise<void>;
  reject(error: Error): void;
}

/**
 * The operations of a model, one at a time, in the order of their numbers. Numbers may arrive out of order, and more than once.
 * An operation that waits for a number that does not come fails in the end, and all numbers before it count as lost.
 */
export class OperationQueue {
  /** Requests with a gradient that is missing: they failed, were refused, or never came. */
  lost: { readonly seqId: number; readonly why: string }[] = [];
  readonly #gapMs: number;
  /** Operations that wait or run. */
  readonly #open = new Map<number, Operation>();
  readonly #finished = new Set<number>();
  /** All numbers up to this one are over. */
  #done = 0;
  #gap: NodeJS.Timeout | undefined;
  #running: { readonly seqId: number; readonly ended: Promise<void> } | null = null;
  #closed: Error | null = null;

  /** @param gapMs longest wait for a number that does not come */
  constructor(gapMs: number) {
    this.#gapMs = gapMs;
  }

  /**
   * Runs an operation when it is its turn.
   * @param seqId its number: 1 and on for each model
   * @param ordered false: it runs as it arrives, before smaller numbers that have not come yet
   * @param learns true where it adds a gradient
   * @throws ApiError 400, at once, for a number that was used or is out of range
   */
  run<T>(seqId: number, ordered: boolean, work: () => Promise<T>, learns = false): Promise<T> {
    this.check(seqId);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const failed = (error: Error) => {
      if (learns) this.lost.push({ seqId, why: error.message });
      reject(error);
    };
    this.#open.set(seqId, { ordered, run: () => work().then(resolve, failed), reject });
    this.#next();
    return promise;
  }

  /** @throws ApiError 400 for a number that was used, or is out of range */
  check(seqId: number): void {
    if (this.#closed) throw badRequest(this.#closed.message, 'model_id');
    if (seqId < 1) throw badRequest(`seq_id is ${seqId}; the first request of a model has 1`, 'seq_id');
    if (this.#isUsed(seqId)) {
      const fault = `seq_id ${seqId} was used for another request`;
      throw badRequest(`${fault}: number requests 1, 2, 3 and so on`, 'seq_id');
    }
    // What others wait for is taken at any time.
    const room = this.#open.size < MAX_OPEN || seqId < Math.max(...this.#open.keys());
    if (room && seqId <= this.#done + MAX_AHEAD) return;
    const state = `${this.#open.size} requests wait, next is ${this.#done + 1}`;
    throw badRequest(`seq_id ${seqId} is too far ahead: ${state}`, 'seq_id');
  }

  /**
   * Counts the number of a request that was refused at once, so that others do not wait for it.
   * @param learns true where a gradient is missing now
   */
  refuse(seqId: number, why: string, learns: boolean): void {
    if (seqId < 1 || seqId > this.#done + MAX_AHEAD || this.#isUsed(seqId)) return;
    if (learns) this.lost.push({ seqId, why });
    this.#finish(seqId);
  }

  /** Refuses what waits, and lets what runs end. */
  async close(reason: string): Promise<void> {
    const closed = new Error(reason);
    this.#closed = closed;
    clearTimeout(this.#gap);
    for (const [seqId, { reject }] of this.#open) if (seqId !== this.#running?.seqId) reject(closed);
    await this.#running?.ended;
  }

  #isUsed(seqId: number): boolean {
    return seqId <= this.#done || this.#finished.has(seqId) || this.#open.has(seqId);
  }

  /** Starts the operation with the smallest number that may run. */
  #next(): void {
    if (this.#running || this.#closed || this.#open.size === 0) return;
    clearTimeout(this.#gap);
    const seqId = Math.min(...this.#open.keys());
    const { ordered, run } = this.#open.get(seqId)!;
    if (ordered && seqId !== this.#done + 1) {
      this.#gap = setTimeout(() => this.#giveUp(seqId), this.#gapMs).unref();
      return;
    }
    const ended = run().then(() => {
      this.#running = null;
      this.#finish(seqId);
    });
    this.#running = { seqId, ended };
  }

  /** Fails an operation that waited too long, and counts the numbers before it as lost. */
  #giveUp(seqId: number): void {
    const waited = `seq_id ${seqId} waited ${this.#gapMs / 1000} s for ${this.#done + 1}`;
    this.#open.get(seqId)!.reject(badRequest(`${waited}, which never came`, 'seq_id'));
    this.#open.delete(seqId);
    for (let lost = this.#done + 1; lost <= seqId; lost++)
      this.refuse(lost, 'it never came, or waited', true);
  }

  #finish(seqId: number): void {
    this.#open.delete(seqId);
    this.#finished.add(seqId);
    while (this.#finished.delete(this.#done + 1)) this.#done++;
    // A later step fails for the first of those before it: the others need no memory.
    const first = this.lost.find(one => one.seqId <= this.#done);
    this.lost = this.lost.filter(one => one === first || one.seqId > this.#done);
    this.#next();
  }
}
