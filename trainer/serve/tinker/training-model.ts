import { randomUUID } from 'node:crypto';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LossBatch, LossProgram } from '../../policy/learning/loss-program.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import type { OptimizerSettings } from '../../policy/policy.ts';
import type { ForwardBackwardOutput } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';
import { OperationQueue } from './operation-queue.ts';
import type { AdapterWeights } from './samplers.ts';

/** Versions of a model that samplers may use; of older ones the weights are gone. */
const MAX_SNAPSHOTS = 16;

/** A LoRA adapter that a client trains: its operations, one at a time, and the versions that are sampled. */
export class TrainingModel {
  readonly id: string;
  /** Differs between models that had the same id one after the other. */
  readonly key = randomUUID();
  readonly lora: LoraConfig;
  readonly operations: OperationQueue;
  readonly created = new Date().toISOString();
  /** Resolves when the model can be used; rejects with why it cannot be opened. */
  readonly policy: Promise<LocalPolicy>;
  readonly #snapshots = new Map<number, Float32Array>();

  constructor(id: string, lora: LoraConfig, policy: Promise<LocalPolicy>, gapMs: number) {
    this.id = id;
    this.lora = lora;
    this.policy = policy;
    this.operations = new OperationQueue(gapMs);
  }

  /**
   * Log p of each target, and the loss; adds the gradient unless it is forward only.
   * @param program computes the loss
   */
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

  /** Takes weights from a checkpoint, and the optimizer's state or none. Added gradients are dropped. */
  async load(folder: string, optimizer: boolean): Promise<void> {
    const policy = await this.policy;
    this.operations.lost = [];
    await policy.dropGradients();
    await policy.load(folder);
    if (!optimizer) await policy.resetOptimizer();
  }

  /** Writes the adapter, with the optimizer's state or without. */
  async save(folder: string, optimizer: boolean): Promise<void> {
    const policy = await this.policy;
    await (optimizer ? policy.save(folder) : policy.publish(folder));
  }

  /** The weights as they are now; kept for samplers while few are newer. */
  async snapshot(): Promise<AdapterWeights> {
    const { version, flat } = await (await this.policy).copyWeights();
    if (!this.#snapshots.has(version)) this.#snapshots.set(version, flat);
    if (this.#snapshots.size > MAX_SNAPSHOTS) this.#snapshots.delete(this.#snapshots.keys().next().value!);
    const read = async () => {
      const kept = this.#snapshots.get(version);
      if (kept) return kept;
      const why = `the server keeps the ${MAX_SNAPSHOTS} newest of a model`;
      throw badRequest(`this sampler's weights are gone: ${why}`, 'sampling_session_id');
    };
    return { key: `${this.id}@${version}`, lora: this.lora, read };
  }

  /** Lets what runs end, and frees the model. */
  async close(reason: string): Promise<void> {
    await this.operations.close(reason);
    const policy = await this.policy.catch(() => undefined);
    await policy?.close();
  }
}
