import type { PagedAttentionAttributes } from '../builder.ts';
import { describe, GraphError, sameShape, type TensorType } from '../tensor.ts';
import { expectFloat, expectIds, type Operation } from './operation.ts';

/** Operations on arrays that stay on a device, for generation: cache rows, attention over the cache, and sampling. */

/**
 * table [n, ...rest], rows [m, ...rest], places [m] in 0 … n−1 → the table with row places[i] replaced by rows[i]. If
 * several rows have one place, any of them wins. A table that is an input on the device is changed in place. No
 * gradient.
 */
export const putRows: Operation = {
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
};

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
 * softmax(scale · q kᵀ) v of rows that each belong to a sequence, over keys and values in blocks (Kwon et al., 2023).
 * q [rows, heads, size]; k and v [places, keyHeads, size], where keyHeads divides heads; `tables` float32 [slots, blocks], the
 * numbers of a sequence's blocks; `slots` int32 [rows], the list that a row uses; `positions` int32 [rows], the last position that
 * it sees. Position p is at place tables[slot, p / blockSize] · blockSize + p mod blockSize. Without gradient.
 */
export const pagedAttention: Operation<PagedAttentionAttributes> = {
  name: 'pagedAttention',
  infer(inputs) {
    pagedAttentionSizes(inputs);
    return { dtype: 'float32', shape: inputs[0].shape };
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
 * Samples a token for each row: logits [rows, width], settings float32 [rows, 5] → [rows, 3]. Weights are exp((logit −
 * largest) · settings[0]). Three filters apply in turn. Top-k keeps the k largest, the first of equals. Top-p keeps the
 * fewest weights that add up to that share. Min-p keeps weights of at least that share of the largest. The kept weights
 * form consecutive intervals; the token is the one with the interval that contains the uniform number. No gradient.
 */
export const sample: Operation = {
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
};
