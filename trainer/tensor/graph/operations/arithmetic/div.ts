import { binary } from './elementwise.ts';

export const div = binary({
  name: 'div',
  onnx: 'Div',
  scalar: function div(a: number, b: number): number {
    return a / b;
  },
  accepts: ['float32'],
  gradient: ({ g, inputs: [a, b], output, upstream, needs }) => {
    const scaled = g.div(upstream, b);
    return [
      needs(0) ? g.sumTo(scaled, a.shape) : undefined,
      needs(1) ? g.sumTo(g.neg(g.mul(scaled, output)), b.shape) : undefined,
    ];
  },
});
