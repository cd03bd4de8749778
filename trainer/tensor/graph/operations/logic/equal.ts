import { binary } from '../arithmetic/elementwise.ts';

export const equal = binary({
  name: 'equal',
  onnx: 'Equal',
  scalar: function equal(a: number, b: number): number {
    return a === b ? 1 : 0;
  },
  accepts: ['float32', 'int32'],
  result: 'bool',
});
