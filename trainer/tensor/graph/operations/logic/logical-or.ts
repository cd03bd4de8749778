import { binary } from '../arithmetic/elementwise.ts';

export const logicalOr = binary({
  name: 'logicalOr',
  onnx: 'Or',
  scalar: function logicalOr(a: number, b: number): number {
    return Math.max(a, b);
  },
  accepts: ['bool'],
  result: 'bool',
});
