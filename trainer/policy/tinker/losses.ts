import { countLossTokens, type LossCounts, predictedTokens } from '../../algorithms/losses/aggregation.ts';
import {
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
import type { WireDatum, WireTensor } from '../../tinker/proto.ts';
import { allocateInputs } from '../learning/batch-inputs.ts';
import type { TinkerProfile } from './profiles.ts';
import type { TinkerLoss } from './training-session.ts';

/** Sequences that go through the graph together, padded to a multiple of so many tokens. */
const ROWS = 8;
const TOKEN_STEP = 128;

/** Arrays of a sequence by token: entry t belongs to token t, predicted from tokens < t. */
type TokenArrays = Readonly<Record<string, Float32Array>>;

/** The sequences of a step and their loss. */
export interface LossBatch {
  readonly sequences: readonly TrainingSequence[];
  readonly settings: LossSettings;
  readonly structure: LossStructure;
  readonly counts: LossCounts;
}

/** The server's computation of a loss. */
export interface LossRoute {
  readonly loss: TinkerLoss;
  /** The server's inputs of the loss, besides the targets, for the sequence at an index of the batch. */
  readonly arrays: (sequence: TrainingSequence, index: number) => TokenArrays;
}

/** A datum: N − 1 input tokens, and at position i what belongs to token i + 1, its target. */
export function datumOf(tokenIds: Int32Array, arrays: TokenArrays): WireDatum {
  const shape = [tokenIds.length - 1];
  const inputs = new Map<string, WireTensor>([['target_tokens', { values: tokenIds.subarray(1), shape }]]);
  for (const [name, values] of Object.entries(arrays))
    inputs.set(name, { values: values.subarray(1), shape });
  return { tokens: tokenIds.subarray(0, -1), inputs };
}

/** A datum with targets to score. */
export function scoredDatum({ tokenIds }: { readonly tokenIds: Int32Array }): WireDatum {
  return datumOf(tokenIds, { weights: new Float32Array(tokenIds.length).fill(1) });
}

/** Inputs of an update besides log-probabilities. @throws RangeError naming the setting that the API has no room for */
export function preparedLoss(sequences: readonly TrainingSequence[], settings: LossSettings): LossBatch {
  if (settings.entropyCoefficient > 0) {
    throw new RangeError(
      `loss.entropy_coefficient is ${settings.entropyCoefficient}, and a Tinker server returns no entropies: set it to 0`,
    );
  }
  const crossEntropy = sequences.some(sequence => sequence.crossEntropyWeights !== undefined);
  const structure = lossStructure(settings, { value: false, entropy: false, crossEntropy });
  return { sequences, settings, structure, counts: countLossTokens(sequences) };
}

/**
 * The server's own route of a loss where it computes the same, with aggregation, weights of sequences and off-policy weights in the
 * advantages; otherwise undefined, and {@link gradientRoute} takes one more forward pass. `dro` is such a one: the server's has no
 * mask, and would pull on the tokens of prompts.
 */
export function lossRoute(
  { settings, structure, counts }: LossBatch,
  { reduction }: TinkerProfile,
): LossRoute | undefined {
  const inputs = (sequence: TrainingSequence) => lossInputs(sequence, settings, structure, counts);
  const { policy, kl, crossEntropy, dualClip } = structure;
  if (policy === null) {
    // A mean over weights is not a sum with them.
    if (reduction === 'mean' || kl !== null) return undefined;
    const arrays = (sequence: TrainingSequence) => ({ weights: inputs(sequence).crossEntropyWeights! });
    return { loss: { name: 'cross_entropy', config: {} }, arrays };
  }
  const name = policy === 'decoupled_ppo' ? 'ppo' : policy;
  if (!(name === 'cispo' || (name === 'ppo' && !dualClip)) || kl !== null || crossEntropy) return undefined;
  const config = { clip_low_threshold: 1 - settings.clipLow, clip_high_threshold: 1 + settings.clipHigh };
  const arrays = (sequence: TrainingSequence) => {
    const { oldLogProbs, advantages, policyWeights } = inputs(sequence);
    return {
      logprobs: oldLogProbs!,
      advantages: advantages!.map((advantage, t) => advantage * policyWeights![t]),
    };
  };
  return { loss: { name, config }, arrays };
}

/**
 * The gradient by log-probabilities as a loss of the server: with ratios of 1 the gradient of `importance_sampling` is that of
 * −Σ A·log π.
 */
export function gradientRoute(
  gradients: readonly Float32Array[],
  logProbs: readonly Float32Array[],
): LossRoute {
  const arrays = (_: TrainingSequence, i: number) => ({
    logprobs: logProbs[i],
    advantages: gradients[i].map(gradient => -gradient),
  });
  return { loss: { name: 'importance_sampling', config: {} }, arrays };
}

/** Datums of a step for a server that sums, or for one that averages: its means are then canceled. */
export function stepData(
  sequences: readonly TrainingSequence[],
  { arrays }: LossRoute,
  { reduction }: TinkerProfile,
): WireDatum[] {
  return sequences.map((sequence, i) => {
    const own = arrays(sequence, i);
    if (reduction === 'sum' || !own.advantages) return datumOf(sequence.tokenIds, own);
    const weights = Float32Array.from(predictedTokens(sequence));
    const factor = weights.reduce((sum, weight) => sum + weight, 0) * sequences.length;
    return datumOf(sequence.tokenIds, {
      ...own,
      weights,
      advantages: own.advantages.map(advantage => factor * advantage),
    });
  });
}

export interface TokenGradients {
  /** ∂loss / ∂log π of each token, by sequence. */
  readonly gradients: readonly Float32Array[];
  readonly metrics: Readonly<Record<string, number>>;
}

/** The trainer's own loss with log-probabilities in place of a model: its metrics, and its gradient by them. */
export class LossProgram {
  #runtime: Promise<Runtime> | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #programs = new Map<string, Promise<Executable>>();

  /**
   * Runs follow one another, because a program gives its arrays away.
   * @param logProbs log π of each token in nats, by sequence; what is not trained is not read
   */
  run(batch: LossBatch, logProbs: readonly Float32Array[]): Promise<TokenGradients> {
    const result = this.#turn.then(() => this.#run(batch, logProbs));
    this.#turn = result.catch(() => {});
    return result;
  }

  async #run(batch: LossBatch, logProbs: readonly Float32Array[]): Promise<TokenGradients> {
    const { sequences, settings, structure, counts } = batch;
    const longest = sequences.reduce((most, { tokenIds }) => Math.max(most, tokenIds.length), 1);
    const width = TOKEN_STEP * Math.ceil(longest / TOKEN_STEP);
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
    return { gradients: found, metrics: finishMetrics(sums) };
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
    g.output('gradient', gradients(g, loss, [logProbs])[0]);
    this.#runtime ??= openRuntime('onnx', 1);
    return (await this.#runtime).compile(g.build());
  }
}
