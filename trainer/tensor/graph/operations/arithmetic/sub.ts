import { binary } from './elementwise.ts';

export const sub = binary('sub', (a, b) => a - b, {
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream }) => [
    g.sumTo(upstream, a.shape),
    g.sumTo(g.neg(upstream), b.shape),
  ],
});
