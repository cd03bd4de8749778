import type { TensorBuilder } from '../../builder.ts';
import { describe, GraphError, sameShape, sizeOf, type Tensor, type TensorType } from '../../tensor.ts';
import { expectFloat, expectIds, type Operation } from '../operation.ts';

/**
 * `blockSize` positions of a sequence lie side by side in the cache. A row sees the last `window` positions up to its own, all
 * when 0. Scores s become softcap · tanh(s / softcap), unless it is 0.
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
