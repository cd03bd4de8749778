import { binary } from './elementwise.ts';

export const mul = binary('mul', (a, b) => a * b, {
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream, needs }) => [
    needs(0) ? g.sumTo(g.mul(upstream, b), a.shape) : undefined,
    needs(1) ? g.sumTo(g.mul(upstream, a), b.shape) : undefined,
  ],
});
