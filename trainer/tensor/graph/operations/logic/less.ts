import { binary } from '../arithmetic/elementwise.ts';

export const less = binary({
  name: 'less',
  onnx: 'Less',
  scalar: function less(a: number, b: number): number {
    return a < b ? 1 : 0;
  },
  accepts: ['float32', 'int32'],
  result: 'bool',
});
