import t from 'tap';
import { broadcastStrides, collapse } from './layout.ts';

t.test('axes that all operands walk as one are merged', async t => {
  t.strictSame(collapse([2, 3, 4], [[12, 4, 1]]), { extents: [24], strides: [[1]] });
  t.strictSame(
    collapse(
      [2, 3, 4],
      [
        [12, 4, 1],
        [0, 1, 0],
      ],
    ),
    {
      extents: [4, 3, 2],
      strides: [
        [1, 4, 12],
        [0, 1, 0],
      ],
    },
  );
  t.strictSame(
    collapse(
      [5, 1, 6],
      [
        [6, 6, 1],
        [0, 0, 0],
      ],
    ),
    { extents: [30], strides: [[1], [0]] },
  );
  t.strictSame(collapse([], [[]]), { extents: [1], strides: [[0]] });
});

t.test('an operand repeats where it has one entry or no axis', async t => {
  t.strictSame(broadcastStrides([3, 1], [2, 3, 4]), [0, 1, 0]);
  t.strictSame(broadcastStrides([], [2, 3]), [0, 0]);
  t.strictSame(broadcastStrides([2, 3], [2, 3]), [3, 1]);
});
