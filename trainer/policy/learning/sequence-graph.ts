import { countTrained } from '../../algorithms/losses/aggregation.ts';
import { declareDropout } from '../../models/adapters/lora.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { decoderHidden, decoderLogits, decoderValues } from '../../models/decoder.ts';
import {
  collect,
  type PackedLayout,
  rightPadded,
  type SelectedPositions,
  selectPositions,
  spread,
} from '../../models/sequence-layout.ts';
import { type Graph, GraphBuilder, type Shape, type Tensor } from '../../tensor/graph/graph.ts';
import type { CompileOptions, Executable, Runtime } from '../../tensor/runtime/runtime.ts';
import type { ScoreRequest } from '../policy.ts';
import { type BatchShape, commonTimes, type MicroBatch } from './micro-batches.ts';
import type { TokenMasks } from './token-masks.ts';

/** Most memory of one copy of logits: on the processor, and on a GPU, which needs many rows to be busy. */
const LOGITS_BYTES = { processor: 2 ** 26, gpu: 2 ** 29 };
const FLOAT_BYTES = 4;

/** A decoder over rows, with the tensors that a loss or a score needs of its predictions. */
export interface SequenceGraph {
  readonly g: GraphBuilder;
  /** Shape of the tensors below: [rows, predictions], or where rows are packed [predictions]. */
  readonly shape: Shape;
  /** Null for a critic. */
  readonly logProbs: Tensor | null;
  readonly entropies: Tensor | null;
  /** Σ π² over the vocabulary, if requested. */
  readonly squares?: Tensor | null;
  /** Null without a value head. */
  readonly values: Tensor | null;
  /**
   * Sums a tensor of this shape over each sequence, and returns the sum at every prediction. The tensor is 0 in
   * padding. No gradient.
   */
  sequenceSum(x: Tensor): Tensor;
}

/**
 * Builds the program up to its predictions. Inputs: `ids` int32 [rows, time], `targets` int32 [rows, predictions],
 * `inverseTemperature` []. If not all predictions are requested, `positions` int32 [rows, predictions] names those that
 * are. Under masks there are `masks` float32 [masks, vocabulary], added to logits, and `maskRows` int32
 * [rows, predictions]. With packed rows, `ids` are [tokens], `targets` and `maskRows` [predictions], and a {@link
 * PackedLayout} is an input for tokens (`places`, `tokens`). If not all predictions are requested, there is another for
 * these (`askedPlaces`, `askedTokens`), with the token of each (`asked`) and the prediction of each token
 * (`askedInverse`). A critic predicts no tokens, and has no `targets`, `inverseTemperature` or masks.
 */
export function buildSequenceGraph(
  config: DecoderConfig,
  shape: BatchShape,
  options: {
    readonly valueHead: boolean;
    readonly critic: boolean;
    /** Number of masks that tokens were sampled under; 0: none was. */
    readonly masks: number;
    /** Also Σ π² over the vocabulary at each prediction. */
    readonly squares?: boolean;
    /** True if it runs on a GPU. */
    readonly onGpu?: boolean;
    /** Number of predictions with logits that exist at once; {@link logitRows} when absent. */
    readonly logitRows?: number;
    /**
     * Share of the adapters' inputs that becomes 0, by the numbers of rows in the input `dropoutRows`; none when
     * absent.
     */
    readonly dropout?: number;
  },
): SequenceGraph {
  const g = new GraphBuilder();
  const { rows, time, packed } = shape;
  const extents = packed ? [packed.predictions] : [rows, shape.predictions];
  const ids = g.input('ids', 'int32', packed ? [packed.tokens] : [rows, time]);
  const packing = packed && {
    ...packingInputs(g, { places: rows * time, tokens: packed.tokens }),
    shared: packed.shared,
  };
  const tokens = packed ? packed.tokens : rows * time;
  const layout = {
    ...rightPadded(g, config, rows, time),
    packing: packing ?? undefined,
    dropout: options.dropout ? declareDropout(g, options.dropout, tokens) : undefined,
  };
  const selection = shape.predictions === time ? undefined : selected(g, config, shape);
  const hidden = decoderHidden(g, config, ids, layout, selection);
  const among = selection?.packing ?? packing;
  const predicted = options.critic
    ? { logProbs: null, entropies: null }
    : tokenPredictions(g, config, hidden, extents, {
        logitRows: logitRows(config, options.onGpu ?? false),
        ...options,
      });
  return {
    g,
    shape: extents,
    ...predicted,
    values: options.valueHead ? g.reshape(decoderValues(g, config, hidden), extents) : null,
    sequenceSum: x => (among ? packedSum(g, x, among, rows) : g.sum(x, [-1], true)),
  };
}

function tokenPredictions(
  g: GraphBuilder,
  config: DecoderConfig,
  hidden: Tensor,
  extents: Shape,
  {
    masks,
    squares: squared = false,
    logitRows: atOnce,
  }: { readonly masks: number; readonly squares?: boolean; readonly logitRows: number },
): { readonly logProbs: Tensor; readonly entropies: Tensor; readonly squares?: Tensor } {
  const flat = (name: string) => g.reshape(g.input(name, 'int32', extents), [-1]);
  const inverseTemperature = g.input('inverseTemperature', 'float32', []);
  const table = masks > 0 ? g.input('masks', 'float32', [masks, config.vocabularySize]) : null;
  const maskRows = table && flat('maskRows');
  const targets = flat('targets');
  const predictionsOf = (rows: (x: Tensor) => Tensor) => {
    let logits = decoderLogits(g, config, rows(hidden), inverseTemperature);
    if (table !== null) logits = g.add(logits, g.gather(table, rows(maskRows!)));
    const distribution = g.logSoftmax(logits);
    const entropies = g.neg(g.sum(g.mul(g.exp(distribution), distribution), [-1]));
    const squares = squared ? { squares: g.sum(g.exp(g.mul(distribution, 2)), [-1]) } : {};
    return { logProbs: g.takeLast(distribution, rows(targets)), entropies, ...squares };
  };
  const count = targets.shape[0];
  if (count <= atOnce) {
    const { logProbs, entropies, squares } = predictionsOf(x => x);
    return {
      logProbs: g.reshape(logProbs, extents),
      entropies: g.reshape(entropies, extents),
      ...(squares ? { squares: g.reshape(squares, extents) } : {}),
    };
  }
  const pieces = Array.from({ length: Math.ceil(count / atOnce) }, (_, i) => {
    const [start, end] = [i * atOnce, Math.min(count, (i + 1) * atOnce)];
    return g.stage(() => predictionsOf(x => g.slice(x, 0, start, end)), true);
  });
  const joined = (name: 'logProbs' | 'entropies' | 'squares') =>
    g.reshape(
      g.concat(
        pieces.map(piece => piece[name]!),
        0,
      ),
      extents,
    );
  return {
    logProbs: joined('logProbs'),
    entropies: joined('entropies'),
    ...(squared ? { squares: joined('squares') } : {}),
  };
}

/**
 * Number of predictions with logits that exist at once; more are computed in parts, and recomputed in the backward
 * pass.
 */
export function logitRows({ vocabularySize }: Pick<DecoderConfig, 'vocabularySize'>, onGpu: boolean): number {
  const bytes = onGpu ? LOGITS_BYTES.gpu : LOGITS_BYTES.processor;
  return Math.max(1, Math.floor(bytes / (FLOAT_BYTES * vocabularySize)));
}

/** The requested predictions, where not all are. */
function selected(
  g: GraphBuilder,
  config: DecoderConfig,
  { rows, time, predictions, packed }: BatchShape,
): SelectedPositions {
  const selection = selectPositions(g, config, g.input('positions', 'int32', [rows, predictions]), time);
  if (packed === null) return selection;
  return {
    ...selection,
    tokens: g.input('asked', 'int32', [packed.predictions]),
    inverse: g.input('askedInverse', 'int32', [packed.tokens]),
    packing: packingInputs(g, { askedPlaces: rows * predictions, askedTokens: packed.predictions }),
  };
}

function packingInputs(g: GraphBuilder, extents: { readonly [name: string]: number }): PackedLayout {
  const [places, tokens] = Object.entries(extents).map(([name, extent]) => g.input(name, 'int32', [extent]));
  return { places, tokens };
}

function packedSum(g: GraphBuilder, x: Tensor, packing: PackedLayout, rows: number): Tensor {
  const column = g.reshape(x, [-1, 1]);
  const padded = g.reshape(spread(g, column, packing), [rows, -1]);
  const sums = g.broadcastTo(g.sum(padded, [-1], true), padded.shape);
  return g.stopGradient(g.reshape(collect(g, g.reshape(sums, [-1, 1]), packing), x.shape));
}

/** Arrays for every input of a program, used at every run. */
export type BatchInputs = { readonly [name: string]: Float32Array | Int32Array };

/** The loss mask has the tokens that are predicted. */
export type PredictedSequence = Pick<ScoreRequest, 'tokenIds' | 'lossMask' | 'targets'>;

/** Indices of a sequence's tokens and predictions in a program's arrays. */
interface Placement {
  /** Index of the token at each of its positions but the last. */
  readonly tokens: Int32Array;
  /** Number of positions, from the first on, that it shares with the row before. */
  readonly shared: number;
  /** Index of its first prediction. */
  readonly prediction: number;
}

export function allocateInputs(graph: Graph): BatchInputs {
  return Object.fromEntries(
    [...graph.inputs].map(([name, { dtype, shape }]) => {
      const size = shape.reduce((a, b) => a * b, 1);
      return [name, dtype === 'int32' ? new Int32Array(size) : new Float32Array(size)];
    }),
  );
}

/** A compiled graph with the arrays of its inputs. */
export interface CompiledProgram {
  readonly executable: Executable;
  readonly inputs: BatchInputs;
  /** Names of the outputs that are metrics. */
  readonly metrics: readonly string[];
}

/** Programs by everything that their graphs depend on; each is compiled at its first use. */
export class CompiledPrograms {
  readonly #programs = new Map<string, CompiledProgram>();

  /**
   * @param dependencies JSON that is the same for the same graph
   * @param build the graph, what it is compiled with, and its metrics
   */
  async get(
    runtime: Runtime,
    dependencies: readonly unknown[],
    build: () => { graph: Graph; options: CompileOptions; metrics?: readonly string[] },
  ): Promise<CompiledProgram> {
    const key = JSON.stringify(dependencies);
    const known = this.#programs.get(key);
    if (known !== undefined) return known;
    const { graph, options, metrics = [] } = build();
    const executable = await runtime.compile(graph, options);
    const program = { executable, inputs: allocateInputs(graph), metrics };
    this.#programs.set(key, program);
    return program;
  }
}

/** Writes and reads the arrays of a micro-batch's program. The sequences are its members. */
export class BatchArrays {
  readonly #shape: BatchShape;
  readonly #sequences: readonly PredictedSequence[];
  readonly #placements: readonly Placement[];
  /** All predictions have a place, not only the requested ones. */
  readonly #all: boolean;

  constructor(shape: MicroBatch, sequences: readonly PredictedSequence[]) {
    this.#shape = shape;
    this.#sequences = sequences;
    this.#all = shape.predictions === shape.time;
    this.#placements = placed(shape, sequences, this.#all);
  }

  /** Writes the tokens, and targets, positions and masks of masked ones; the rest is 0. */
  fillTokens(inputs: BatchInputs, masks: TokenMasks | null): void {
    const { ids, targets, maskRows, positions } = inputs;
    if (this.#shape.packed !== null) this.#fillPacking(inputs, this.#shape.packed);
    ids.fill(0);
    targets?.fill(0);
    positions?.fill(0);
    maskRows?.fill(0);
    masks?.fill(inputs.masks as Float32Array);
    this.#sequences.forEach(({ tokenIds, lossMask, targets: own = tokenIds }, row) => {
      const { tokens, shared } = this.#placements[row];
      for (let t = shared; t < tokens.length; t++) ids[tokens[t]] = tokenIds[t];
      if (targets !== undefined) this.put(row, own, targets);
      if (positions !== undefined) {
        let to = row * this.#shape.predictions;
        for (let t = 1; t < lossMask.length; t++) if (lossMask[t]) positions[to++] = t - 1;
      }
      if (masks !== null) this.put(row, masks.rowsOf(row), maskRows);
    });
  }

  /** Writes per-token values of a sequence to its predictions. */
  put(row: number, source: ArrayLike<number>, target: Float32Array | Int32Array): void {
    const { lossMask } = this.#sequences[row];
    let to = this.#placements[row].prediction;
    for (let t = 1; t < source.length; t++) if (this.#all || lossMask[t]) target[to++] = source[t];
  }

  /** Reads predictions of a sequence back to the tokens they predict; 0 where the loss mask is. */
  take(row: number, source: ArrayLike<number>): Float32Array {
    const { lossMask } = this.#sequences[row];
    const out = new Float32Array(lossMask.length);
    let from = this.#placements[row].prediction;
    for (let t = 1; t < lossMask.length; t++) {
      if (lossMask[t]) out[t] = source[from];
      if (this.#all || lossMask[t]) from++;
    }
    return out;
  }

  /** Writes the places of tokens in padded rows; tokens and places without a counterpart are padding. */
  #fillPacking(inputs: BatchInputs, packed: NonNullable<BatchShape['packed']>): void {
    const { rows, time, predictions } = this.#shape;
    const lengths = this.#sequences.map(({ tokenIds }) => tokenIds.length - 1);
    const { places, tokens } = inputs;
    places.fill(packed.tokens - 1);
    tokens.fill(freePlace(lengths, rows, time));
    lengths.forEach((length, row) => {
      const { tokens: own, shared } = this.#placements[row];
      places.set(own, row * time);
      for (let t = shared; t < length; t++) tokens[own[t]] = row * time + t;
    });
    if (this.#all) return;
    const { asked, askedInverse, askedPlaces, askedTokens } = inputs;
    const counts = this.#sequences.map(({ lossMask }) => countTrained(lossMask));
    asked.fill(packed.tokens - 1);
    askedInverse.fill(packed.predictions - 1);
    askedPlaces.fill(packed.predictions - 1);
    askedTokens.fill(freePlace(counts, rows, predictions));
    this.#sequences.forEach(({ lossMask }, row) => {
      const { tokens: own, prediction } = this.#placements[row];
      let count = 0;
      for (let t = 1; t < lossMask.length; t++) {
        if (!lossMask[t]) continue;
        const token = own[t - 1];
        asked[prediction + count] = token;
        askedInverse[token] = prediction + count;
        askedPlaces[row * predictions + count] = prediction + count;
        askedTokens[prediction + count] = row * predictions + count;
        count++;
      }
    });
  }
}

function placed(
  { time, predictions, packed }: BatchShape,
  sequences: readonly PredictedSequence[],
  all: boolean,
): Placement[] {
  let [token, prediction, before] = [0, 0, new Int32Array(0)];
  return sequences.map((sequence, row) => {
    const length = sequence.tokenIds.length - 1;
    if (packed === null) {
      const first = row * time;
      return {
        tokens: Int32Array.from({ length }, (_, t) => first + t),
        shared: 0,
        prediction: row * predictions,
      };
    }
    const shared = packed.shared && row > 0 ? commonTimes(sequences[row - 1], sequence) : 0;
    const tokens = Int32Array.from({ length }, (_, t) => (t < shared ? before[t] : token++));
    const placement = { tokens, shared, prediction };
    prediction += all ? length : countTrained(sequence.lossMask);
    before = tokens;
    return placement;
  });
}

/** A place in rows of `width` that a batch of such lengths leaves empty, the last of its row. */
function freePlace(lengths: readonly number[], rows: number, width: number): number {
  const shorter = lengths.findIndex(length => length < width);
  return (shorter === -1 ? rows : shorter + 1) * width - 1;
}
