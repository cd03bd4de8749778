import { unary } from '../arithmetic/elementwise.ts';

/** x · sigmoid(x), the activation of the Qwen and Llama families. */
export const silu = unary(
  'silu',
  x => x / (1 + Math.exp(-x)),
  ({ g, inputs: [x], output, upstream }) => {
    const gate = g.sigmoid(x);
    return g.mul(upstream, g.add(gate, g.mul(output, g.sub(1, gate))));
  },
);
