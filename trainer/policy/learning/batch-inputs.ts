import { countTrained } from '../../algorithms/losses/aggregation.ts';
import type { Graph } from '../../tensor/graph/graph.ts';
import type { ScoreRequest } from '../policy.ts';
import { commonTimes, type MicroBatch } from './micro-batches.ts';
import type { BatchShape } from './sequence-graph.ts';
import type { TokenMasks } from './token-masks.ts';

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
