import { sizeOf } from '../../tensor.ts';
import type { Operation } from '../operation.ts';
import { type AttentionAttributes, attentionSizes, forEachQuery } from './attention.ts';

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
