import type { TensorBuilder } from '../builder.ts';
import { describe, GraphError, sameShape, sizeOf, type Tensor, type TensorType } from '../tensor.ts';
import { expectFloat, expectIds, type Operation } from './operation.ts';

/** Operations on arrays that stay on a device, for generation: cache rows, attention over the cache, and sampling. */

/** Adds `table` with the rows at `places` replaced by `rows`; for runtimes with separate memory. */
export function putRows(g: TensorBuilder, table: Tensor, rows: Tensor, places: Tensor): Tensor {
  return g.apply('putRows', [table, rows, places]);
}

/**
 * table [n, ...rest], rows [m, ...rest], places [m] in 0 … n−1 → the table with row places[i] replaced by rows[i]. If
 * several rows have one place, any of them wins. A table that is an input on the device is changed in place. No
 * gradient.
 */
export const putRowsOperation: Operation = {
  name: 'putRows',
  infer([table, rows, places]) {
    expectFloat('putRows', table, rows);
    expectIds('putRows', places);
    const [count] = rows.shape;
    const fits = table.shape.length > 0 && sameShape(rows.shape, [count, ...table.shape.slice(1)]);
    if (!fits || !sameShape(places.shape, [count])) {
      throw new GraphError(
        `putRows needs a table [n,...rest], rows [m,...rest] and places [m]; got ${describe(table)}, ${describe(rows)}, ${describe(places)}`,
      );
    }
    return table;
  },
  evaluate([table, rows, places]) {
    const width = sizeOf(table.shape.slice(1));
    const out = table.data.slice();
    places.data.forEach((place, i) => {
      out.set(rows.data.subarray(i * width, (i + 1) * width), place * width);
    });
    return out;
  },
};

/**
 * `blockSize` positions of a sequence are adjacent in the cache. A row sees the last `window` positions up to its own,
 * or all if `window` is 0. Scores s become softcap · tanh(s / softcap), unless `softcap` is 0.
 */
export type PagedAttentionAttributes = Readonly<{
  blockSize: number;
  scale: number;
  window: number;
  softcap: number;
}>;

/** Extents of an attention over blocks. */
export interface PagedAttentionSizes {
  readonly rows: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly size: number;
  /** Most blocks of a sequence. */
  readonly blocks: number;
}

/**
 * Adds the attention of rows over keys and values in blocks, for runtimes with separate memory: q [rows, heads, size], k
 * and v [places, keyHeads, size]; `tables` float32 [slots, blocks], `slots` and `positions` int32 [rows].
 */
export function pagedAttention(
  g: TensorBuilder,
  [q, k, v]: readonly [q: Tensor, k: Tensor, v: Tensor],
  tables: { readonly tables: Tensor; readonly slots: Tensor; readonly positions: Tensor },
  attributes: PagedAttentionAttributes,
): Tensor {
  return g.apply('pagedAttention', [q, k, v, tables.tables, tables.slots, tables.positions], attributes);
}

/**
 * softmax(scale · q kᵀ) v of rows that each belong to a sequence, over keys and values in blocks (Kwon et al., 2023).
 * q [rows, heads, size]; k and v [places, keyHeads, size], where keyHeads divides heads; `tables` float32 [slots, blocks], the
 * numbers of a sequence's blocks; `slots` int32 [rows], the list that a row uses; `positions` int32 [rows], the last position that
 * it sees. Position p is at place tables[slot, p / blockSize] · blockSize + p mod blockSize. Without gradient.
 */
export const pagedAttentionOperation: Operation<PagedAttentionAttributes> = {
  name: 'pagedAttention',
  infer(inputs) {
    pagedAttentionSizes(inputs);
    return { dtype: 'float32', shape: inputs[0].shape };
  },
  evaluate([q, k, v, tables, slots, positions], { blockSize, scale, window, softcap }, type) {
    const { rows, heads, keyHeads, size, blocks } = pagedAttentionSizes([q, k, v, tables, slots, positions]);
    const out = new Float64Array(sizeOf(type.shape));
    for (let row = 0; row < rows; row++) {
      const keyAt = (position: number, head: number): number => {
        const block = tables.data[slots.data[row] * blocks + Math.floor(position / blockSize)];
        const place = block * blockSize + (position % blockSize);
        return (place * keyHeads + Math.floor((head * keyHeads) / heads)) * size;
      };
      for (let head = 0; head < heads; head++) {
        const own = (row * heads + head) * size;
        const last = positions.data[row];
        const first = window === 0 ? 0 : Math.max(0, last + 1 - window);
        const scores = Array.from({ length: last + 1 - first }, (_, seen) => {
          let dot = 0;
          for (let i = 0; i < size; i++) dot += q.data[own + i] * k.data[keyAt(first + seen, head) + i];
          return softcap === 0 ? dot * scale : softcap * Math.tanh((dot * scale) / softcap);
        });
        const largest = Math.max(...scores);
        const weights = scores.map(score => Math.exp(score - largest));
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        weights.forEach((weight, seen) => {
          const from = keyAt(first + seen, head);
          for (let i = 0; i < size; i++) out[own + i] += (weight / total) * v.data[from + i];
        });
      }
    }
    return out;
  },
};

/** @throws GraphError when the tensors do not fit each other */
export function pagedAttentionSizes(inputs: readonly TensorType[]): PagedAttentionSizes {
  const [q, k, v, tables, slots, positions] = inputs;
  expectFloat('pagedAttention', q, k, v, tables);
  expectIds('pagedAttention', slots);
  expectIds('pagedAttention', positions);
  const [rows, heads, size] = q.shape;
  const [places, keyHeads] = k.shape;
  const fits =
    q.shape.length === 3 &&
    sameShape(k.shape, [places, keyHeads, size]) &&
    sameShape(v.shape, k.shape) &&
    heads % keyHeads === 0 &&
    tables.shape.length === 2 &&
    sameShape(slots.shape, [rows]) &&
    sameShape(positions.shape, [rows]);
  if (!fits) {
    throw new GraphError(
      `pagedAttention needs q [rows,heads,size], k and v [places,keyHeads,size], lists [slots,blocks], slots and positions [rows], keyHeads dividing heads; got ${inputs.map(describe).join(', ')}`,
    );
  }
  return { rows, heads, keyHeads, size, blocks: tables.shape[1] };
}

/**
 * Numbers a row is sampled by: 1 / temperature, top-k (0: off), top-p (1: off), one uniform in [0, 1) (below 0 takes the
 * largest), and min-p (0: off).
 */
export const SAMPLE_SETTINGS = 5;
/** Numbers a row returns: the token (−1 where a relevant logit is NaN), its weight, the sum of the kept weights. */
export const SAMPLE_RESULTS = 3;

/**
 * Adds a node that samples a token for each row of logits [rows, width], for runtimes with separate memory: [rows, 3]
 * with token, weight and sum of weights.
 * @param settings [rows, {@link SAMPLE_SETTINGS}]
 */
export function sample(g: TensorBuilder, logits: Tensor, settings: Tensor): Tensor {
  return g.apply('sample', [logits, settings]);
}

/**
 * Samples a token for each row: logits [rows, width], settings float32 [rows, 5] → [rows, 3]. Weights are exp((logit −
 * largest) · settings[0]). Three filters apply in turn. Top-k keeps the k largest, the first of equals. Top-p keeps the
 * fewest weights that add up to that share. Min-p keeps weights of at least that share of the largest. The kept weights
 * form consecutive intervals; the token is the one with the interval that contains the uniform number. No gradient.
 */
export const sampleOperation: Operation = {
  name: 'sample',
  infer([logits, settings]) {
    expectFloat('sample', logits, settings);
    const [rows] = logits.shape;
    if (logits.shape.length !== 2 || !sameShape(settings.shape, [rows, SAMPLE_SETTINGS])) {
      throw new GraphError(
        `sample needs logits [rows,width] and settings [rows,${SAMPLE_SETTINGS}]; got ${describe(logits)}, ${describe(settings)}`,
      );
    }
    return { dtype: 'float32', shape: [rows, SAMPLE_RESULTS] };
  },
  evaluate([logits, settings]) {
    const [rows, width] = logits.shape;
    const out = new Float64Array(rows * SAMPLE_RESULTS);
    for (let row = 0; row < rows; row++) {
      const own = logits.data.subarray(row * width, (row + 1) * width);
      const numbers = settings.data.subarray(row * SAMPLE_SETTINGS, (row + 1) * SAMPLE_SETTINGS);
      out.set(sampleRow(own, numbers), row * SAMPLE_RESULTS);
    }
    return out;
  },
};

function sampleRow(logits: Float64Array, [scale, topK, topP, uniform, minP]: Float64Array): number[] {
  if (logits.some(Number.isNaN)) return [-1, 0, 1];
  const largest = logits.reduce((most, x) => Math.max(most, x), -Infinity);
  if (uniform < 0) return [logits.indexOf(largest), 1, 1];
  const weights = logits.map(x => Math.exp((x - largest) * scale));
  const ranked = Array.from(weights, (_, token) => token).sort((a, b) => weights[b] - weights[a] || a - b);
  const candidates = topK > 0 ? ranked.slice(0, topK) : ranked;
  const target = topP * candidates.reduce((sum, token) => sum + weights[token], 0);
  let reached = 0;
  const kept = candidates.filter((token, rank) => {
    if (topP < 1 && rank > 0 && reached >= target) return false;
    reached += weights[token];
    return weights[token] >= minP;
  });
  const mass = kept.reduce((sum, token) => sum + weights[token], 0);
  let rest = uniform * mass;
  let sampled = kept[0];
  for (const token of kept.sort((a, b) => a - b)) {
    if (weights[token] === 0) continue;
    sampled = token;
    if (rest < weights[token]) break;
    rest -= weights[token];
  }
  return [sampled, weights[sampled], mass];
}
