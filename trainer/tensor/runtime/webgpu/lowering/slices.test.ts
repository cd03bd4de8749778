import t from 'tap';
import { cutBox, offsetOf, sliceOf, spanOf, startOf, wholeOf, windowOf } from './slices.ts';
import type { DeviceValue } from './step.ts';

const value: DeviceValue = { id: 1, length: 1000 };

t.test('parts of parts are parts of the whole', async t => {
  const part = sliceOf(sliceOf(value, 100, 500), 30, 20);
  t.equal(wholeOf(part), value);
  t.equal(startOf(part), 130);
  t.equal(part.length, 20);
  t.equal(sliceOf(value, 0, 1000), value);
});

t.test('a window begins where a binding may', async t => {
  const window = windowOf(sliceOf(value, 100, 500), 30, 20);
  t.equal(startOf(window.value), 128);
  t.equal(window.start, 2);
  t.equal(window.value.length, 22);
});

t.test('a box is cut until all operands fit, and every element is in one piece', async t => {
  const extents = [10, 300, 3];
  const strides = [
    [1, 10, 3000],
    [300, 1, 3000],
    [0, 0, 1],
  ];
  const pieces = cutBox(extents, strides, 700);
  const seen = new Set<number>();
  let count = 0;
  for (const piece of pieces) {
    for (const own of strides) t.ok(spanOf(piece.extents, own) <= 700);
    const from = offsetOf(piece, strides[0]);
    for (let z = 0; z < piece.extents[2]; z++) {
      for (let y = 0; y < piece.extents[1]; y++) {
        for (let x = 0; x < piece.extents[0]; x++) {
          seen.add(from + x + 10 * y + 3000 * z);
          count++;
        }
      }
    }
  }
  t.equal(count, 9000);
  t.equal(seen.size, 9000);
  t.same(cutBox(extents, strides, 9000).length, 1);
});
