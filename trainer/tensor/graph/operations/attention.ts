import {
  broadcastShapes,
  describe,
  GraphError,
  type NdArray,
  sameShape,
  sizeOf,
  type TensorType,
} from '../tensor.ts';
import { expectFloat, type Operation } from './operation.ts';

/** Attention of whole sequences, its gradient, and rotary positions. */

/**
 * Rotary position embedding (Su et al., 2021) in the half-split form of Llama and Qwen.
 * x [batch, time, heads, size], cos and sin [batch, time, size/2]: with x = (u, v) in halves of the last axis
 * the result is (u·cos − v·sin, v·cos + u·sin). Angles carry no gradient.
 */
export const rope: Operation = {
  name: 'rope',
  infer([x, cos, sin]) {
    expectFloat('rope', x, cos, sin);
    const [batch, time, , size] = x.shape;
    const angles = [batch, time, size / 2];
    if (x.shape.length !== 4 || !sameShape(cos.shape, angles) || !sameShape(sin.shape, angles)) {
      throw new GraphError(
        `rope needs x [batch,time,heads,size] and cos, sin [batch,time,size/2]; got ${describe(x)}, ${describe(cos)}, ${describe(sin)}`,
      );
    }
    return { dtype: x.dtype, shape: x.shape };
  },
  gradient: ({ g, inputs: [, cos, sin], upstream }) => [
    g.rope(upstream, cos, g.neg(sin)),
    undefined,
    undefined,
  ],
  evaluate([x, cos, sin], _attributes, type) {
    const [batch, time, heads, size] = x.shape;
    const half = size / 2;
    const out = new Float64Array(sizeOf(type.shape));
    for (let token = 0; token < batch * time; token++) {
      for (let head = 0; head < heads; head++) {
        const start = (token * heads + head) * size;
        for (let i = 0; i < half; i++) {
          const c = cos.data[token * half + i];
          const s = sin.data[token * half + i];
          const u = x.data[start + i];
          const v = x.data[start + half + i];
          out[start + i] = u * c - v * s;
          out[start + half + i] = v * c + u * s;
        }
      }
    }
    return out;
  },
};

/** `causal`: query t sees keys 0 … t, which needs as many keys as queries. */
export type AttentionAttributes = Readonly<{ causal: boolean; scale: number }>;

/** Extents of an attention: `groups` query heads share one key and value head. */
export interface AttentionSizes {
  readonly batch: number;
  readonly queries: number;
  readonly keys: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly groups: number;
  readonly size: number;
}

/**
 * softmax(scale · q kᵀ + bias) v for every head (Vaswani et al., 2017; grouped queries as Ainslie et al., 2023).
 * q [batch, queries, heads, size], k and v [batch, keys, keyHeads, size], where keyHeads divides heads;
 * optional bias [batch or 1, 1, queries, keys], without gradient. Result of the shape of q.
 */
export const attention: Operation<AttentionAttributes> = {
  name: 'attention',
  infer(inputs, attributes) {
    attentionSizes(inputs, attributes);
    return { dtype: 'float32', shape: inputs[0].shape };
  },
  gradient({ g, inputs, output, attributes, upstream, needs }) {
    const of = (index: number, wrt: string) =>
      needs(index)
        ? g.apply('attentionGradient', [...inputs.slice(0, 3), output, upstream, ...inputs.slice(3)], {
            ...attributes,
            wrt,
          })
        : undefined;
    return [of(0, 'query'), of(1, 'key'), of(2, 'value'), undefined];
  },
  evaluate(inputs, attributes, type) {
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
};

/**
 * @throws GraphError when the tensors do not fit each other
 */
export function attentionSizes(
  inputs: readonly TensorType[],
  { causal }: AttentionAttributes,
): AttentionSizes {
  const [q, k, v, bias] = inputs;
  expectFloat('attention', ...inputs);
  const [batch, queries, heads, size] = q.shape;
  const [, keys, keyHeads] = k.shape;
  const fits =
    q.shape.length === 4 && sameShape(k.shape, [batch, keys, keyHeads, size]) && sameShape(v.shape, k.shape);
  if (!fits || heads % keyHeads !== 0) {
    throw new GraphError(
      `attention needs q [batch,queries,heads,size] and k, v [batch,keys,keyHeads,size], keyHeads dividing heads; got ${describe(q)}, ${describe(k)}, ${describe(v)}`,
    );
  }
  if (causal && queries !== keys) {
    throw new GraphError(
      `causal attention needs as many keys as queries, got ${queries} queries and ${keys} keys`,
    );
  }
  const full = [batch, 1, queries, keys];
  if (
    bias !== undefined &&
    (bias.shape.length !== 4 || !sameShape(broadcastShapes(bias.shape, full, 'attention'), full))
  ) {
    throw new GraphError(`attention: bias ${describe(bias)} does not broadcast to [${full.join(',')}]`);
  }
  return { batch, queries, keys, heads, keyHeads, groups: heads / keyHeads, size };
}

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

export type AttentionGradientAttributes = AttentionAttributes & Readonly<{ wrt: 'query' | 'key' | 'value' }>;

/**
 * Gradient of attention with respect to one of its inputs, from q, k, v, its result, the result's gradient and
 * the bias if it had one. The three gradients are three nodes, so that a runtime may compute them together.
 */
export const attentionGradient: Operation<AttentionGradientAttributes> = {
  name: 'attentionGradient',
  infer(inputs, attributes) {
    const [q, k, v, , , ...bias] = inputs;
    attentionSizes([q, k, v, ...bias], attributes);
    return { dtype: 'float32', shape: attributes.wrt === 'query' ? q.shape : k.shape };
  },
  evaluate([q, k, v, result, upstream, bias], attributes, type) {
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
};
