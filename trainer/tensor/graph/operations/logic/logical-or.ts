import { binary } from '../arithmetic/elementwise.ts';

export const logicalOr = binary('logicalOr', (a, b) => a | b, {
  accepts: ['bool'],
  result: 'bool',
});
