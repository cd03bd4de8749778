import { binary } from '../arithmetic/elementwise.ts';

export const greater = binary('greater', (a, b) => (a > b ? 1 : 0), {
  accepts: ['float32', 'int32'],
  result: 'bool',
});
