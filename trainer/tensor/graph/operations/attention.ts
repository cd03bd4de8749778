import { broadcastShapes, describe, GraphError, sameShape, type TensorType } from '../tensor.ts';
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
};
