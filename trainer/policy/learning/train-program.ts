import { type LossCounts, predictedTokens } from '../../algorithms/losses/aggregation.ts';
import {
  type LossInputs,
  type LossStructure,
  lossInputs,
  lossScalarInputs,
  lossScalars,
  lossTokenInputs,
} from '../../algorithms/losses/inputs.ts';
import { addMetrics } from '../../algorithms/losses/metric-sums.ts';
import type { LossScalarInput } from '../../algorithms/losses/policy-loss.ts';
import type { LossSettings } from '../../algorithms/losses/settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from '../../algorithms/losses/update-loss.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { CompiledGrammar } from '../../generation/grammar.ts';
import { fillDropoutRows } from '../../models/adapters/lora.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import type { Graph } from '../../tensor/graph/graph.ts';
import type { ParameterSource, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Learner, Runtime } from '../../tensor/runtime/runtime.ts';
import {
  type BatchShape,
  type MicroBatch,
  type PlanSettings,
  planMicroBatches,
  shapeKey,
} from './micro-batches.ts';
import {
  BatchArrays,
  type BatchInputs,
  buildSequenceGraph,
  type CompiledProgram,
  CompiledPrograms,
  type PredictedSequence,
} from './sequence-graph.ts';
import { TokenMasks } from './token-masks.ts';

export interface ProgramOptions extends PlanSettings {
  readonly valueHead: boolean;
  /** Predicts no tokens and only learns values. */
  readonly critic: boolean;
  readonly runtime: Runtime;
  readonly parameters: ParameterSource;
  /** The learned parameters. */
  readonly trained: ParameterStore;
  readonly grammars: ReadonlyMap<string, CompiledGrammar>;
  /** Gradient checkpointing: recomputes each layer in the backward pass instead of keeping its activations. */
  readonly recompute?: boolean;
  /** Dropout of the adapters' inputs during learning; none when null or absent. */
  readonly dropout?: DropoutSettings | null;
  /** Index of the worker among those that share a step; 0 when absent. */
  readonly index?: number;
  /** Takes a factor on the loss, which its gradients then contain. */
  readonly lossScaled?: boolean;
}

/** Dropout of adapters; masks follow from the seed, the policy's version, the worker and the micro-batch. */
export interface DropoutSettings {
  readonly probability: number;
  readonly seed: number;
}

/** A worker's part of an optimizer step. */
export interface GradientTask {
  readonly sequences: readonly TrainingSequence[];
  readonly loss: LossSettings;
  readonly structure: LossStructure;
  /** Counts of the whole step, not of this worker's share. */
  readonly counts: LossCounts;
  readonly temperature: number;
  /** Version of the policy that learns. */
  readonly version: number;
  /** Factor on the loss, where programs take one. */
  readonly lossScale: number;
  /** First or further gradient of a sum until a step; log p of each predicted token is then reported. */
  readonly sum?: 'first' | 'more';
}

/** A worker's report about its share of a gradient. */
export interface GradientReport {
  /** Summed over the sequences. */
  readonly metrics: Record<string, number>;
  /** log p at the predicted tokens of each sequence; none unless gradients add up. */
  readonly logProbs: readonly Float32Array[];
}

/** Computes gradients of the loss over sequences, in micro-batches with exact sums. */
export class GradientProgram {
  readonly #options: ProgramOptions;
  /** Gradients of one micro-batch, which every compiled program writes to. */
  readonly #partial: ParameterStore;
  readonly #programs = new CompiledPrograms();

  constructor(options: ProgramOptions) {
    this.#options = options;
    this.#partial = options.trained.emptyLike();
  }

  /**
   * @param total overwritten by the sum over the sequences, or added to if the task continues a sum; a learner keeps it
   * on its device
   */
  async run(task: GradientTask, total: Float32Array | Learner): Promise<GradientReport> {
    const metrics: Record<string, number> = {};
    const logProbs = new Map<TrainingSequence, Float32Array>();
    const learner = total instanceof Float32Array ? null : total;
    let begun = task.sum === 'more';
    if (!begun) learner?.clear();
    let batches = 0;
    for (const part of gradientBatches(this.#options, task.sequences)) {
      const program = await this.#program(part, task, learner);
      const arrays = fillBatch(program.inputs, part, task);
      this.#fillDropout(program.inputs, task, batches++);
      const outputs = await program.executable.run(program.inputs);
      if (total instanceof Float32Array) {
        const partial = this.#partial.flat;
        if (begun) for (let i = 0; i < total.length; i++) total[i] += partial[i];
        else total.set(partial);
      }
      begun = true;
      addMetrics(metrics, Object.fromEntries(program.metrics.map(name => [name, outputs[name][0]])));
      if (task.sum === undefined) continue;
      part.sequences.forEach((sequence, row) => {
        logProbs.set(sequence, arrays.take(row, outputs.logProbs));
      });
    }
    if (!begun && total instanceof Float32Array) total.fill(0);
    return { metrics, logProbs: task.sequences.flatMap(sequence => logProbs.get(sequence) ?? []) };
  }

  #fillDropout({ dropoutRows }: BatchInputs, { version }: GradientTask, batch: number): void {
    const { dropout, index = 0 } = this.#options;
    if (dropout && dropoutRows) fillDropoutRows(dropoutRows, dropout.seed, version, index, batch);
  }

  #program(
    { batch, masks }: GradientBatch,
    task: GradientTask,
    learner: Learner | null,
  ): Promise<CompiledProgram> {
    // An entropy without a coefficient is only a metric and needs no gradient.
    const rewarded = task.loss.entropyCoefficient > 0;
    const reportsLogProbs = task.sum !== undefined;
    const key = [shapeKey(batch), task.structure, rewarded, masks?.count, reportsLogProbs];
    const { runtime, parameters, trained } = this.#options;
    return this.#programs.get(runtime, key, () => {
      const options = { ...this.#options, reportsLogProbs };
      const built = buildTrainGraph(options, batch, task.structure, rewarded, masks?.count ?? 0);
      const outputs = Object.fromEntries(trained.layout.map(({ name }) => [name, this.#partial.array(name)]));
      const into = learner === null ? { outputs } : { sums: learner.gradients };
      return { ...built, options: { parameters, ...into } };
    });
  }
}

/** Loss and its gradients by the names of the learned parameters, and metrics by theirs. */
function buildTrainGraph(
  options: Pick<
    ProgramOptions,
    'config' | 'valueHead' | 'critic' | 'trained' | 'recompute' | 'lossScaled' | 'dropout'
  > & { readonly runtime?: Pick<Runtime, 'memory'>; readonly reportsLogProbs?: boolean },
  shape: BatchShape,
  structure: LossStructure,
  entropyRewarded: boolean,
  masks: number,
): { readonly graph: Graph; readonly metrics: readonly string[] } {
  const { config, valueHead, critic, trained } = options;
  const sequence = buildSequenceGraph(config, shape, {
    valueHead,
    critic,
    masks,
    onGpu: options.runtime?.memory !== undefined,
    dropout: options.dropout?.probability,
  });
  const { g, logProbs, entropies, values, sequenceSum } = sequence;
  const outputs = {
    ...(logProbs === null ? {} : { logProbs }),
    ...(entropies === null ? {} : { entropies: entropyRewarded ? entropies : g.stopGradient(entropies) }),
    ...(values === null ? {} : { values }),
  };
  const inputs = declareLossInputs(g, structure, sequence.shape);
  const { loss, metrics } = buildUpdateLoss(g, outputs, inputs, structure, { sequenceSum });
  const weights = trained.layout.map(entry => g.parameter(entry.name, entry.shape));
  const scaled = options.lossScaled ? g.mul(loss, g.input('lossScale', 'float32', [])) : loss;
  const grads = gradients(g, scaled, weights, { recompute: options.recompute });
  trained.layout.forEach(({ name }, i) => {
    g.output(name, grads[i]);
  });
  for (const [name, tensor] of metrics) g.output(name, tensor);
  if (options.reportsLogProbs && logProbs !== null) g.output('logProbs', logProbs);
  return { graph: g.build(), metrics: [...metrics.keys()] };
}

/** Sequences that go through a program together. */
export interface GradientBatch {
  readonly batch: MicroBatch;
  readonly sequences: readonly TrainingSequence[];
  readonly masks: TokenMasks | null;
}

/** Sequences in micro-batches, with the masks that their tokens were sampled under. */
export function* gradientBatches(
  options: PlanSettings & Pick<ProgramOptions, 'grammars'>,
  sequences: readonly TrainingSequence[],
): Generator<GradientBatch> {
  for (const batch of planMicroBatches(sequences.map(predicted), options)) {
    const members = batch.members.map(member => sequences[member]);
    yield { batch, sequences: members, masks: TokenMasks.of(members, options.grammars) };
  }
}

/** Writes tokens and the loss's inputs. */
export function fillBatch(
  inputs: BatchInputs,
  { batch, sequences, masks }: GradientBatch,
  task: GradientTask,
): BatchArrays {
  const arrays = new BatchArrays(batch, sequences.map(predicted));
  arrays.fillTokens(inputs, masks);
  fillLoss(inputs, arrays, sequences, task);
  return arrays;
}

/** A sequence for the model's arrays: its loss mask has every token that the loss needs predicted. */
function predicted(sequence: TrainingSequence): PredictedSequence {
  const { tokenIds, targets } = sequence;
  return { tokenIds, targets, lossMask: predictedTokens(sequence) };
}

function fillLoss(
  inputs: BatchInputs,
  arrays: BatchArrays,
  sequences: readonly TrainingSequence[],
  task: GradientTask,
): void {
  const { loss, structure, counts } = task;
  inputs.inverseTemperature?.fill(1 / task.temperature);
  if (inputs.lossScale !== undefined) inputs.lossScale[0] = task.lossScale;
  const scalars = lossScalars(loss, counts);
  for (const name of lossScalarInputs(structure) as readonly LossScalarInput[]) {
    inputs[lossInputName(name)][0] = scalars[name];
  }
  const names = lossTokenInputs(structure);
  for (const name of names) inputs[lossInputName(name)].fill(0);
  sequences.forEach((sequence, row) => {
    const own: LossInputs = lossInputs(sequence, loss, structure, counts);
    for (const name of names) arrays.put(row, own[name]!, inputs[lossInputName(name)]);
  });
}
