import type { PagedAttentionAttributes } from './builder.ts';
import {
  type AttentionAttributes,
  type AttentionGradientAttributes,
  attentionSizes,
} from './operations/attention.ts';
import { pagedAttentionSizes, SAMPLE_RESULTS, SAMPLE_SETTINGS } from './operations/device.ts';
import { type Attributes, sizeOf, type TensorType } from './tensor.ts';

/** A value of the reference: every element type held in doubles (bool as 0 or 1). */
export interface NdArray extends TensorType {
  readonly data: Float64Array;
}

interface Reference {
  evaluate(inputs: readonly NdArray[], attributes: Attributes, type: TensorType): Float64Array;
}
/** Results of operations in float64 by name, the reference for every runtime. */
export type References = Readonly<Record<string, Reference['evaluate'] | undefined>>;

/** Attention and what generation does with arrays on a device, in float64. */
export const attentionReferences: References = {
  attention(inputs, attributes: AttentionAttributes, type) {
    const [, , v] = inputs;
    const { size } = attentionSizes(inputs, attributes);
    const out = new Float64Array(sizeOf(type.shape));
    forEachQuery(inputs, attributes, inputs[3], ({ queryOffset, keyOffset, weights }) => {
      weights.forEach((weight, key) => {
        const from = keyOffset(key);
        for (let i = 0; i < size; i++) out[queryOffset + i] += weight * v.data[from + i];
      });
    });
    return out;
  },
  attentionGradient([q, k, v, result, upstream, bias], attributes: AttentionGradientAttributes, type) {
    const { scale, wrt } = attributes;
    const { size } = attentionSizes([q, k, v], attributes);
    const out = new Float64Array(sizeOf(type.shape));
    forEachQuery([q, k, v], attributes, bias, ({ queryOffset, keyOffset, weights }) => {
      let shift = 0;
      for (let i = 0; i < size; i++) shift += upstream.data[queryOffset + i] * result.data[queryOffset + i];
      weights.forEach((weight, key) => {
        const from = keyOffset(key);
        let inner = -shift;
        for (let i = 0; i < size; i++) inner += upstream.data[queryOffset + i] * v.data[from + i];
        const score = weight * inner * scale;
        for (let i = 0; i < size; i++) {
          if (wrt === 'query') out[queryOffset + i] += score * k.data[from + i];
          else if (wrt === 'key') out[from + i] += score * q.data[queryOffset + i];
          else out[from + i] += weight * upstream.data[queryOffset + i];
        }
      });
    });
    return out;
  },
  putRows([table, rows, places]) {
    const width = sizeOf(table.shape.slice(1));
    const out = table.data.slice();
    places.data.forEach((place, i) => {
      out.set(rows.data.subarray(i * width, (i + 1) * width), place * width);
    });
    return out;
  },
  pagedAttention(
    [q, k, v, tables, slots, positions],
    { blockSize, scale, window, softcap }: PagedAttentionAttributes,
    type,
  ) {
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
  sample([logits, settings]) {
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

interface QueryVisit {
  /** Element of q and of the result at which the query's row starts. */
  readonly queryOffset: number;
  /** Element of k and v at which a key's row starts. */
  keyOffset(key: number): number;
  /** softmax over the keys the query sees. */
  readonly weights: Float64Array;
}

/** Visits every query of every head with its attention weights, in float64. */
export function forEachQuery(
  inputs: readonly NdArray[],
  attributes: AttentionAttributes,
  bias: NdArray | undefined,
  visit: (query: QueryVisit) => void,
): void {
  const [q, k] = inputs;
  const { batch, queries, keys, heads, keyHeads, groups, size } = attentionSizes(inputs, attributes);
  for (let b = 0; b < batch; b++) {
    for (let head = 0; head < heads; head++) {
      const keyOffset = (key: number): number =>
        ((b * keys + key) * keyHeads + Math.floor(head / groups)) * size;
      for (let query = 0; query < queries; query++) {
        const queryOffset = ((b * queries + query) * heads + head) * size;
        const weights = new Float64Array(attributes.causal ? query + 1 : keys);
        for (let key = 0; key < weights.length; key++) {
          for (let i = 0; i < size; i++) weights[key] += q.data[queryOffset + i] * k.data[keyOffset(key) + i];
          weights[key] =
            weights[key] * attributes.scale + (bias === undefined ? 0 : biasAt(bias, b, query, key));
        }
        normalize(weights);
        visit({ queryOffset, keyOffset, weights });
      }
    }
  }
}

function biasAt({ shape, data }: NdArray, batch: number, query: number, key: number): number {
  const [batches, , queries, keys] = shape;
  const row = batches === 1 ? 0 : batch;
  const column = keys === 1 ? 0 : key;
  return data[(row * queries + (queries === 1 ? 0 : query)) * keys + column];
}

function normalize(scores: Float64Array): void {
  const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  let total = 0;
  for (let i = 0; i < scores.length; i++) {
    scores[i] = Math.exp(scores[i] - largest);
    total += scores[i];
  }
  for (let i = 0; i < scores.length; i++) scores[i] /= total;
}

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
