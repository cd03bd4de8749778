import t from 'tap';
import { packSequences } from './packing.ts';

const sequence = (id: number, length: number) => ({
  tokenIds: new Int32Array(length).fill(id),
  mask: Uint8Array.from({ length }, (_, i) => (i === 0 ? 0 : 1)),
  logProbs: new Float32Array(length),
  advantages: new Float32Array(length),
});

t.test('rows are filled, longest first, and segments tell who stands where', async t => {
  const rows = packSequences([sequence(1, 2), sequence(2, 5), sequence(3, 3), sequence(4, 9)], 8);
  t.same(
    rows.map(({ tokenIds }) => [...tokenIds]),
    [Array(9).fill(4), [2, 2, 2, 2, 2, 3, 3, 3], [1, 1]],
  );
  t.same([...rows[1].segments!], [0, 0, 0, 0, 0, 1, 1, 1]);
  t.same([...rows[1].mask], [0, 1, 1, 1, 1, 0, 1, 1]);
  t.equal(rows[2].segments, undefined, 'a sequence alone needs none');
});
