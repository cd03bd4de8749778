import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { countLossTokens, type LossCounts } from '../../algorithms/losses/aggregation.ts';
import {
  type AvailableLossInputs,
  type LossStructure,
  lossInputs,
  lossScalarInputs,
  lossScalars,
  lossStructure,
  lossTokenInputs,
} from '../../algorithms/losses/inputs.ts';
import { addMetrics, finishMetrics } from '../../algorithms/losses/metric-sums.ts';
import type { LossSettings } from '../../algorithms/losses/settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from '../../algorithms/losses/update-loss.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { openRuntime } from '../../tensor/runtime/open-runtime.ts';
import type { Executable, Runtime } from '../../tensor/runtime/runtime.ts';
import { allocateInputs } from './sequence-graph.ts';

/**
 * Sequences that go through the graph together. They are padded to this many tokens times a power of two; each width is
 * compiled.
 */
const ROWS = 8;
const LEAST_WIDTH = 128;

/** The sequences of a step and their loss. */
export interface LossBatch {
  readonly sequences: readonly TrainingSequence[];
  readonly settings: LossSettings;
  readonly structure: LossStructure;
  readonly counts: LossCounts;
}

/** A loss that is averaged over the tokens of the batch by its settings. */
export function averagedLoss(
  sequences: readonly TrainingSequence[],
  settings: LossSettings,
  offer: AvailableLossInputs,
): LossBatch {
  const counts = countLossTokens(sequences);
  return { sequences, settings, structure: lossStructure(settings, offer), counts };
}

/** A loss that is a sum over tokens; sequences carry the weights of their tokens. */
export function summedLoss(sequences: readonly TrainingSequence[], settings: LossSettings): LossBatch {
  const one = { tokens: 1, sequences: 1 };
  const counts = { ...one, entropyTokens: 1, entropySequences: 1, streams: { crossEntropy: one } };
  return { ...averagedLoss([], settings, { value: false, entropy: false }), sequences, counts };
}

export interface TokenGradients {
  readonly loss: number;
  /** ∂loss / ∂log π of each token, by sequence. */
  readonly gradients: readonly Float32Array[];
  readonly metrics: Readonly<Record<string, number>>;
}

/** A loss with log-probabilities in place of a model: its value, its metrics, and its gradient by them. */
export class LossProgram {
  #runtime: Promise<Runtime> | undefined;
  readonly #queue = new SerialQueue();
  readonly #programs = new Map<string, Promise<Executable>>();

  /**
   * Runs follow one another, because a run uses the program's arrays.
   * @param logProbs log π of each token in nats, by sequence; untrained tokens are not read
   */
  run(batch: LossBatch, logProbs: readonly Float32Array[]): Promise<TokenGradients> {
    return this.#queue.run(() => this.#run(batch, logProbs));
  }

  async #run(batch: LossBatch, logProbs: readonly Float32Array[]): Promise<TokenGradients> {
    const { sequences, settings, structure, counts } = batch;
    const longest = sequences.reduce((most, { tokenIds }) => Math.max(most, tokenIds.length), LEAST_WIDTH);
    const width = LEAST_WIDTH * 2 ** Math.ceil(Math.log2(longest / LEAST_WIDTH));
    const program = await this.#program(structure, width);
    const scalars = lossScalars(settings, counts);
    const found: Float32Array[] = [];
    const sums: Record<string, number> = {};
    for (let first = 0; first < sequences.length; first += ROWS) {
      const rows = sequences.slice(first, first + ROWS);
      const inputs = allocateInputs(program.graph);
      for (const name of lossScalarInputs(structure)) inputs[lossInputName(name)].fill(scalars[name]);
      rows.forEach((sequence, row) => {
        inputs.logProbs.set(logProbs[first + row], row * width);
        const own = lossInputs(sequence, settings, structure, counts);
        const tokens = lossTokenInputs(structure);
        for (const name of tokens) inputs[lossInputName(name)].set(own[name]!, row * width);
      });
      const { gradient, ...metrics } = await program.run(inputs);
      rows.forEach(({ tokenIds }, row) => {
        found.push((gradient as Float32Array).slice(row * width, row * width + tokenIds.length));
      });
      const values = Object.entries(metrics).map(([name, [value]]) => [name, value]);
      addMetrics(sums, Object.fromEntries(values));
    }
    const { loss, ...metrics } = finishMetrics(sums);
    return { loss, gradients: found, metrics };
  }

  async close(): Promise<void> {
    await (await this.#runtime)?.close();
  }

  #program(structure: LossStructure, width: number): Promise<Executable> {
    const key = JSON.stringify([structure, width]);
    const program = this.#programs.get(key) ?? this.#compiled(structure, width);
    this.#programs.set(key, program);
    return program;
  }

  async #compiled(structure: LossStructure, width: number): Promise<Executable> {
    const shape = [ROWS, width];
    const g = new GraphBuilder();
    const logProbs = g.input('logProbs', 'float32', shape);
    const inputs = declareLossInputs(g, structure, shape);
    const { loss, metrics } = buildUpdateLoss(g, { logProbs }, inputs, structure);
    for (const [name, metric] of metrics) g.output(name, metric);
    g.output('loss', loss);
    g.output('gradient', gradients(g, loss, [logProbs])[0]);
    this.#runtime ??= openRuntime('onnx', 1);
    return (await this.#runtime).compile(g.build());
  }
}
