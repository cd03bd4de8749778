import { binary } from './elementwise.ts';

export const div = binary('div', (a, b) => a / b, {
  accepts: ['float32'],
  gradient: ({ g, inputs: [a, b], output, upstream, needs }) => {
    const scaled = g.div(upstream, b);
    return [
      needs(0) ? g.sumTo(scaled, a.shape) : undefined,
      needs(1) ? g.sumTo(g.neg(g.mul(scaled, output)), b.shape) : undefined,
    ];
  },
});
