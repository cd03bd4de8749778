import { unary } from '../arithmetic/elementwise.ts';

/** x · sigmoid(x), the activation of the Qwen and Llama families. */
export const silu = unary({
  name: 'silu',
  // From exp of a negative number, which never overflows.
  scalar: function silu(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? (x * e) / (1 + e) : x / (1 + e);
  },
  exact: x => x / (1 + Math.exp(-x)),
  gradient: ({ g, inputs: [x], output, upstream }) => {
    const gate = g.sigmoid(x);
    return g.mul(upstream, g.add(gate, g.mul(output, g.sub(1, gate))));
  },
});
