import { binary } from './elementwise.ts';

export const mul = binary({
  name: 'mul',
  onnx: 'Mul',
  scalar: function mul(a: number, b: number): number {
    return a * b;
  },
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream, needs }) => [
    needs(0) ? g.sumTo(g.mul(upstream, b), a.shape) : undefined,
    needs(1) ? g.sumTo(g.mul(upstream, a), b.shape) : undefined,
  ],
});
