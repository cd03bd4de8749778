import { binary } from '../arithmetic/elementwise.ts';

export const greater = binary({
  name: 'greater',
  onnx: 'Greater',
  scalar: function greater(a: number, b: number): number {
    return a > b ? 1 : 0;
  },
  accepts: ['float32', 'int32'],
  result: 'bool',
});
