import type { BatchShape } from './sequence-graph.ts';

/** Lengths are rounded up to multiples of this, and to multiples of more once they are long. */
const TIME_STEP = 16;
/** A length is rounded to at most this share of itself. */
const TIME_SHARE = 1 / 8;
/** Numbers of predictions a row are rounded up to multiples of this … */
const PREDICTION_STEP = 8;
/** … and where that is more than this share of the row, all its predictions are taken. */
const PREDICTION_SHARE = 0.75;
/** Numbers of rows that programs are compiled for. */
const ROW_BUCKETS = [1, 2, 4, 8, 16, 32, 64];
/** What starting a program costs, in tokens. */
const START_COST = 48;
/** Length at which attention costs as much as everything else. */
const ATTENTION_PARITY = 512;

/** Padded tokens of a micro-batch unless told otherwise: activations of small models stay in the cache. */
export const DEFAULT_TOKEN_BUDGET = 2048;

/** Sequences that go through a program together; fewer than `rows` leave rows empty. */
export interface MicroBatch extends BatchShape {
  /** Indices into the sequences that were planned. */
  readonly members: readonly number[];
}

/** What a plan depends on. */
export interface PlannedSequence {
  readonly tokenIds: { readonly length: number };
  readonly mask: ArrayLike<number>;
}

/** The time a sequence of `tokens` tokens is padded to. */
export function timeBucket(tokens: number): number {
  const time = Math.max(1, tokens - 1);
  let step = TIME_STEP;
  while (step * 2 <= time * TIME_SHARE) step *= 2;
  return Math.ceil(time / step) * step;
}

/**
 * Cuts sequences into micro-batches of at most `tokenBudget` padded tokens (a longer sequence goes alone) so that least
 * is spent on padding and on starting programs: sorted by length, then the best cut by dynamic programming. The plan
 * depends on lengths and masks alone.
 */
export function planMicroBatches(sequences: readonly PlannedSequence[], tokenBudget: number): MicroBatch[] {
  const lengths = sequences.map(({ tokenIds }) => tokenIds.length);
  const order = lengths.map((_, index) => index).sort((a, b) => lengths[b] - lengths[a] || a - b);
  const best = [0];
  const cut: Omit<MicroBatch, 'predictions'>[] = [];
  for (let end = 1; end <= order.length; end++) {
    best.push(Infinity);
    for (const rows of ROW_BUCKETS) {
      const start = Math.max(0, end - rows);
      const time = timeBucket(lengths[order[start]]);
      if (rows > 1 && rows * time > tokenBudget) break;
      const cost = best[start] + rows * time * (1 + time / ATTENTION_PARITY) + START_COST;
      if (cost < best[end]) {
        best[end] = cost;
        cut[end] = { rows, time, members: order.slice(start, end) };
      }
      if (start === 0) break;
    }
  }
  const batches: MicroBatch[] = [];
  for (let end = order.length; end > 0; end -= batches[batches.length - 1].members.length) {
    const { rows, time, members } = cut[end];
    const most = Math.max(...members.map(index => countOnes(sequences[index].mask)));
    batches.push({ rows, time, members, predictions: predictionBucket(most, time) });
  }
  return batches.reverse();
}

/** The number of predictions that `masked` tokens of a row of `time` are padded to. */
function predictionBucket(masked: number, time: number): number {
  const count = Math.ceil(Math.max(1, masked) / PREDICTION_STEP) * PREDICTION_STEP;
  return count > PREDICTION_SHARE * time ? time : count;
}

function countOnes(mask: ArrayLike<number>): number {
  let ones = 0;
  for (let t = 0; t < mask.length; t++) if (mask[t]) ones++;
  return ones;
}

/** Deals items to workers so that all get about as many tokens: longest first, each to the one with the least. */
export function dealSequences(lengths: readonly number[], workers: number): number[][] {
  const order = lengths.map((_, index) => index).sort((a, b) => lengths[b] - lengths[a] || a - b);
  const shares: number[][] = Array.from({ length: workers }, () => []);
  const loads = new Array<number>(workers).fill(0);
  for (const index of order) {
    const least = loads.indexOf(Math.min(...loads));
    shares[least].push(index);
    loads[least] += lengths[index];
  }
  return shares;
}
