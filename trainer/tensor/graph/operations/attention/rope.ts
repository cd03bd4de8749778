import { describe, GraphError, sameShape, sizeOf } from '../../tensor.ts';
import { expectFloat, type Operation } from '../operation.ts';

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
