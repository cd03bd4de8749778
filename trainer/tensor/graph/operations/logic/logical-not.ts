import { describe, GraphError } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

export const logicalNot: Operation = {
  name: 'logicalNot',
  infer([x]) {
    if (x.dtype !== 'bool') throw new GraphError(`logicalNot needs bool, got ${describe(x)}`);
    return { dtype: 'bool', shape: x.shape };
  },
  evaluate: ([x]) => x.data.map(value => 1 - value),
};
