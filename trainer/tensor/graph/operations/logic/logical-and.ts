import { binary } from '../arithmetic/elementwise.ts';

export const logicalAnd = binary({
  name: 'logicalAnd',
  onnx: 'And',
  scalar: function logicalAnd(a: number, b: number): number {
    return a * b;
  },
  accepts: ['bool'],
  result: 'bool',
});
