import { binary } from '../arithmetic/elementwise.ts';

export const equal = binary('equal', (a, b) => (a === b ? 1 : 0), {
  accepts: ['float32', 'int32'],
  result: 'bool',
});
