import { binary } from '../arithmetic/elementwise.ts';

export const logicalAnd = binary('logicalAnd', (a, b) => a & b, {
  accepts: ['bool'],
  result: 'bool',
});
