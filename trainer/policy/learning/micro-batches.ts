import { countTrained } from '../../algorithms/losses/aggregation.ts';
import type { DecoderConfig } from '../../models/config.ts';

/** Multiples to which shapes are rounded up, so that few programs are compiled. */
interface Rounding {
  /** Lengths are rounded to multiples of this, and longer ones to larger multiples. */
  readonly time: number;
  /**
   * Numbers of packed tokens and predictions are rounded to multiples of this step, and larger ones to multiples up to
   * this share of themselves.
   */
  readonly packed: { readonly step: number; readonly share: number };
  /** Numbers of predictions a row are rounded to multiples of this. */
  readonly predictions: number;
}
const FINE: Rounding = { time: 16, packed: { step: 8, share: 1 / 16 }, predictions: 8 };
/** For small models, where compiling a program takes more time than padding. */
const COARSE: Rounding = { time: 32, packed: { step: 128, share: 1 / 4 }, predictions: 16 };
/** Most weights that the layers of a small model have. */
const SMALL_WEIGHTS = 4e6;
/** A length is rounded to at most this share of itself. */
const TIME_SHARE = 1 / 8;
/** Above this share of a row, all its predictions are computed. */
const PREDICTION_SHARE = 0.75;
/** Numbers of rows that programs are compiled for. */
const ROW_BUCKETS = [1, 2, 4, 8, 16, 32, 64];
/** Cost of starting a program and adding up its gradients, in tokens. */
const START_COST = 64;
/** Cost of a token in attention for each position of its row, per query's number, in products with a layer's weights … */
const POSITION_COST = 1.4;
/** … and on the way to attention and back where rows are packed, per number of queries, keys, values and results. */
const PACKING_COST = 15;
/** Packed rows take at most this many times the budget where attention pads them. */
const MAX_PLACES = 4;

/** Default tokens of a micro-batch, padding included: activations of small models stay in the cache. */
export const DEFAULT_TOKEN_BUDGET = 2048;

/** Rows that one program takes; time t of a row predicts token t + 1 of its sequence. */
export interface BatchShape {
  readonly rows: number;
  /** Tokens of the longest sequence less one: the last token predicts nothing. */
  readonly time: number;
  /** Most requested predictions of a row; `time`: all. */
  readonly predictions: number;
  /**
   * Numbers of tokens and predictions where rows are packed: one after the other, with at least one of padding, only at
   * the end. Null: each row is padded to `time` and `predictions`.
   */
  readonly packed: {
    readonly tokens: number;
    readonly predictions: number;
    /** Rows share the tokens with which their prompts begin alike, except the last of a prompt; false when absent. */
    readonly shared?: boolean;
  } | null;
}

/** Names a shape: programs of equal names are the same. */
export function shapeKey({ rows, time, predictions, packed }: BatchShape): string {
  const { tokens, predictions: looked, shared = false } = packed ?? {};
  return [rows, time, predictions, ...(packed ? [tokens, looked, shared] : [])].join();
}

/** Sequences that go through a program together; fewer than `rows` leave rows empty. */
export interface MicroBatch extends BatchShape {
  /** Indices into the sequences that were planned. */
  readonly members: readonly number[];
}

/** Properties of a sequence that a plan depends on. */
export interface PlannedSequence {
  readonly tokenIds: ArrayLike<number>;
  readonly lossMask: ArrayLike<number>;
}

/** The time a sequence of `tokens` tokens is padded to, unless its model is small. */
export function timeBucket(tokens: number, { time }: Pick<Rounding, 'time'> = FINE): number {
  return bucket(Math.max(1, tokens - 1), time, TIME_SHARE);
}

export interface PlanSettings {
  /** Tokens of a micro-batch at most, padding included. */
  readonly tokenBudget: number;
  /** False keeps rows apart; they may be packed when absent. */
  readonly packing?: boolean;
  readonly config: DecoderConfig;
}

/**
 * Splits sequences into micro-batches of at most `tokenBudget` tokens (a longer sequence goes alone) with the least
 * cost of padding and of starting programs: sorts by length, then finds the best split by dynamic programming. Rows of
 * unequal length are packed where that costs less than their padding. Packed rows compute the tokens once with which
 * their prompts begin alike, where that costs still less. The plan only depends on lengths, masks, prompts and the model's shape.
 */
export function planMicroBatches(
  sequences: readonly PlannedSequence[],
  settings: PlanSettings,
): MicroBatch[] {
  const lengths = sequences.map(({ tokenIds }) => tokenIds.length);
  const order = lengths.map((_, index) => index).sort((a, b) => lengths[b] - lengths[a] || a - b);
  const apart = bestCuts(order, sequences, settings);
  if (settings.packing === false) return apart.batches;
  const alike = byPrompt(order, sequences);
  const saved = alike.map((index, i) => (i > 0 ? commonTimes(sequences[alike[i - 1]], sequences[index]) : 0));
  if (saved.every(times => times === 0)) return apart.batches;
  const together = bestCuts(alike, sequences, settings, saved);
  return together.cost < apart.cost ? together.batches : apart.batches;
}

/** Sequences that begin alike next to each other, otherwise in the given order. */
function byPrompt(order: readonly number[], sequences: readonly PlannedSequence[]): readonly number[] {
  const times = sequences.map(sharedTimes);
  const arrange = (members: readonly number[], from: number): readonly number[] => {
    if (members.length < 3) return members;
    for (let depth = from; ; depth++) {
      const next = (index: number) => (depth < times[index] ? sequences[index].tokenIds[depth] : -1);
      const branches = Map.groupBy(members, next);
      if (branches.size > 1) return [...branches.values()].flatMap(branch => arrange(branch, depth + 1));
      if (branches.has(-1)) return members;
    }
  };
  return arrange(order, 0);
}

/** Sequences with one prompt, in the order of their first. */
function promptGroups(order: readonly number[], sequences: readonly PlannedSequence[]): number[][] {
  const groups = new Map<string, number[]>();
  for (const index of order) {
    const { tokenIds, lossMask } = sequences[index];
    const key = Array.from({ length: sharedTimes({ lossMask }) }, (_, t) => tokenIds[t]).join();
    const group = groups.get(key);
    // With one token or none there is nothing to share.
    if (group === undefined || !key.includes(',')) groups.set(key.includes(',') ? key : `${index}`, [index]);
    else group.push(index);
  }
  return [...groups.values()];
}

/**
 * Number of positions that a sequence can share with others of its prompt: all but the prompt's last, which predicts a
 * token of each.
 */
function sharedTimes({ lossMask }: Pick<PlannedSequence, 'lossMask'>): number {
  let first = 1;
  while (first < lossMask.length && !lossMask[first]) first++;
  return first < lossMask.length ? first - 1 : 0;
}

/** Number of positions from the first on that two sequences can share, because their prompts begin alike. */
export function commonTimes(one: PlannedSequence, other: PlannedSequence): number {
  const most = Math.min(sharedTimes(one), sharedTimes(other));
  let times = 0;
  while (times < most && one.tokenIds[times] === other.tokenIds[times]) times++;
  return times;
}

/**
 * The cheapest splits of sequences in this order.
 * @param saved positions that each sequence shares with the one before; undefined: none is shared
 */
function bestCuts(
  order: readonly number[],
  sequences: readonly PlannedSequence[],
  { tokenBudget, packing = true, config }: PlanSettings,
  saved?: readonly number[],
): { readonly cost: number; readonly batches: MicroBatch[] } {
  const costs = costsOf(config);
  const rounding = config.layers * layerWeights(config) <= SMALL_WEIGHTS ? COARSE : FINE;
  const trained = order.map(index => countTrained(sequences[index].lossMask));
  const best = [0];
  const cuts: MicroBatchCut[] = [];
  for (let end = 1; end <= order.length; end++) {
    best.push(Infinity);
    let [full, shared, longest, most] = [0, 0, 0, 0];
    for (let start = end - 1; start >= 0; start--) {
      const { length } = sequences[order[start]].tokenIds;
      full += length - 1;
      // The first of a batch computes all its tokens, the next one no longer what they share.
      shared += length - 1 - (saved !== undefined && start + 1 < end ? saved[start + 1] : 0);
      longest = Math.max(longest, length);
      most = Math.max(most, trained[start]);
      const tokens = saved === undefined ? full : shared;
      const count = end - start;
      const rows = ROW_BUCKETS.find(bucket => bucket >= count);
      if (rows === undefined || (count > 1 && tokens > tokenBudget)) break;
      const time = timeBucket(longest, rounding);
      const consider = (cut: Pick<MicroBatchCut, 'packed' | 'shared'>, own: number) => {
        const cost = best[start] + own + rows * time * time * costs.position + START_COST;
        if (cost < best[end]) {
          best[end] = cost;
          cuts[end] = { rows, time, start, ...cut };
        }
      };
      if (rows === 1 || rows * time <= tokenBudget) consider({ packed: null, shared: false }, rows * time);
      if (!packing || rows * time > MAX_PLACES * tokenBudget) continue;
      const packed = packedBucket(full, rounding);
      if (packed < rows * time && full <= tokenBudget) {
        consider({ packed, shared: false }, packed * (1 + costs.packing));
      }
      // Padding needs a place, and there must be fewer predictions than positions.
      const selects = predictionBucket(most + 1, time, rounding) < time;
      if (shared === full || full === rows * time || !selects) continue;
      const once = packedBucket(shared, rounding);
      consider({ packed: once, shared: true }, once + rows * time * costs.packing);
    }
  }
  const batches: MicroBatch[] = [];
  for (let end = order.length; end > 0; end = cuts[end].start) {
    const cut = cuts[end];
    batches.push(microBatch(cut, order.slice(cut.start, end), sequences, rounding));
  }
  return { cost: best[order.length], batches: batches.reverse() };
}

/** Cost of a token in attention, for a position and for packing, as shares of its other costs. */
function costsOf(config: DecoderConfig) {
  const { heads, keyValueHeads, headDimension } = config;
  const [queries, keys] = [heads * headDimension, keyValueHeads * headDimension];
  const weights = layerWeights(config);
  return {
    position: (POSITION_COST * queries) / weights,
    packing: (PACKING_COST * 2 * (queries + keys)) / weights,
  };
}

/** Weights of the products of a layer. */
function layerWeights({ hiddenSize, intermediateSize, heads, keyValueHeads, headDimension }: DecoderConfig) {
  return hiddenSize * (2 * (heads + keyValueHeads) * headDimension + 3 * intermediateSize);
}

interface MicroBatchCut extends Pick<MicroBatch, 'rows' | 'time'> {
  /** Number of tokens where rows are packed. */
  readonly packed: number | null;
  /** Rows compute once what their prompts begin with alike. */
  readonly shared: boolean;
  /** First of its sequences in their order. */
  readonly start: number;
}

function microBatch(
  { rows, time, packed, shared }: MicroBatchCut,
  members: readonly number[],
  sequences: readonly PlannedSequence[],
  rounding: Rounding,
): MicroBatch {
  const masked = members.map(index => countTrained(sequences[index].lossMask));
  const total = masked.reduce((sum, count) => sum + count, 0);
  const predictions = predictionBucket(Math.max(...masked), time, rounding);
  const shape = { rows, time, members };
  if (packed === null) return { ...shape, predictions, packed: null };
  // Packed predictions need padding on either side.
  const roomy = rows * predictions > total ? predictions : predictionBucket(predictions + 1, time, rounding);
  const looked = roomy === time ? packed : packedBucket(total, rounding);
  if (shared) {
    return { ...shape, predictions: roomy, packed: { tokens: packed, predictions: looked, shared } };
  }
  return looked < packed
    ? { ...shape, predictions: roomy, packed: { tokens: packed, predictions: looked } }
    : { ...shape, predictions: time, packed: { tokens: packed, predictions: packed } };
}

/** The number of predictions that `masked` tokens of a row of `time` are padded to. */
function predictionBucket(masked: number, time: number, { predictions: step }: Rounding): number {
  const count = Math.ceil(Math.max(1, masked) / step) * step;
  return count > PREDICTION_SHARE * time ? time : count;
}

/** The padded number of tokens or predictions for this many, with at least one of padding. */
function packedBucket(count: number, { packed }: Rounding): number {
  return bucket(count + 1, packed.step, packed.share);
}

/** The least multiple of a step that holds `count`; the step doubles while it stays within a share of the count. */
function bucket(count: number, smallest: number, share: number): number {
  let step = smallest;
  while (step * 2 <= count * share) step *= 2;
  return Math.ceil(count / step) * step;
}

/**
 * Deals sequences to workers, those of one prompt to the same worker, in parts of at most half of a worker's share.
 * @returns indices by worker
 */
export function dealPrompts(sequences: readonly PlannedSequence[], workers: number): number[][] {
  const length = (index: number) => sequences[index].tokenIds.length;
  const total = sequences.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const groups = promptGroups(
    sequences.map((_, index) => index),
    sequences,
  );
  const parts = groups.flatMap(group => {
    const tokens = group.reduce((sum, index) => sum + length(index), 0);
    const cuts = Math.min(group.length, Math.ceil((2 * workers * tokens) / total));
    const size = Math.ceil(group.length / cuts);
    return Array.from({ length: cuts }, (_, i) => group.slice(i * size, (i + 1) * size));
  });
  const costs = parts.map(part => part.reduce((sum, index) => sum + length(index), 0));
  return dealSequences(costs, workers).map(share => share.flatMap(part => parts[part]));
}

/**
 * Deals items to workers so that all get about the same number of tokens: longest first, each to the worker with the
 * least.
 */
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
