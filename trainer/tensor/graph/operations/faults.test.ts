import t from 'tap';
import { GraphBuilder, GraphError, type Tensor } from '../graph.ts';
import { sample } from './device.ts';

const g = new GraphBuilder();
const float = (...shape: number[]): Tensor => g.input(`float ${g.nodes.length}`, 'float32', shape);
const ids = (...shape: number[]): Tensor => g.input(`ids ${g.nodes.length}`, 'int32', shape);

const faults: readonly [fault: string, build: () => unknown, message: RegExp][] = [
  ['unknown operation', () => g.apply('frobnicate', []), /unknown operation 'frobnicate'; known: neg,/],
  ['shapes that do not broadcast', () => g.add(float(2, 3), float(4)), /add: shapes \[2,3\] and \[4\]/],
  ['types that differ', () => g.add(float(2), ids(2)), /float32\[2\] and int32\[2\]/],
  ['exp of integers', () => g.exp(ids(2)), /exp needs float32, got int32\[2\]/],
  ['inner extents', () => g.matmul(float(2, 3), float(4, 5)), /inner extents 3 and 4 differ/],
  [
    'inner extents of transposed sides',
    () => g.matmul(float(2, 3), float(3, 5), { transposeB: true }),
    /3 and 5 differ.*ᵀ/,
  ],
  ['product of vectors', () => g.matmul(float(3), float(3)), /rank 2 or more/],
  ['reshape to another size', () => g.reshape(float(2, 3), [4]), /\[2,3\].*\[4\]/],
  ['reshape with two free extents', () => g.reshape(float(2, 3), [-1, -1]), /does not fit/],
  ['reshape with a free extent that is no integer', () => g.reshape(float(2, 3), [4, -1]), /does not fit/],
  ['permutation', () => g.transpose(float(2, 3), [0, 0]), /\[0,0\] does not permute/],
  ['axis', () => g.sum(float(2, 3), [2]), /axis 2 is outside a tensor of rank 2/],
  ['range', () => g.slice(float(2, 3), 1, 2, 5), /2 to 5 is not a range/],
  ['broadcast to less', () => g.broadcastTo(float(2, 3), [3]), /does not broadcast to \[3\]/],
  [
    'concat of unlike shapes',
    () => g.concat([float(2, 3), float(3, 3)], 1),
    /does not fit float32\[2,3\] along axis 1/,
  ],
  ['concat of nothing', () => g.concat([], 0), /at least one/],
  ['where without a condition', () => g.where(float(2), float(2), float(2)), /bool condition/],
  ['not of floats', () => g.not(float(2)), /bool/],
  [
    'draws of too few settings',
    () => sample(g, float(4, 9), float(4, 3)),
    /settings \[rows,5\]; got float32\[4,9\]/,
  ],
  ['gather by floats', () => g.gather(float(4, 2), float(3)), /int32 ids/],
  ['rearranging by another inverse', () => g.rearrange(float(4, 2), ids(4), ids(3)), /inverse \[4\]/],
  ['takeLast of other rows', () => g.takeLast(float(2, 3), ids(3)), /not one per row/],
  ['putLast of other rows', () => g.putLast(float(2), ids(3), 4), /differ in shape/],
  ['scatterAddRows of other rows', () => g.scatterAddRows(float(3, 2), ids(4), 5), /does not begin with/],
  ['weight of a norm', () => g.rmsNorm(float(2, 4), float(3), 1e-6), /do not broadcast/],
  ['angles of rope', () => g.rope(float(1, 2, 3, 8), float(1, 2, 8), float(1, 2, 8)), /size\/2/],
  [
    'heads',
    () => g.attention(float(1, 2, 3, 8), float(1, 2, 2, 8), float(1, 2, 2, 8)),
    /keyHeads dividing heads/,
  ],
  [
    'causal with past',
    () => g.attention(float(1, 2, 3, 8), float(1, 5, 3, 8), float(1, 5, 3, 8), { causal: true }),
    /2 queries and 5 keys/,
  ],
  [
    'bias',
    () => g.attention(float(1, 2, 1, 8), float(1, 5, 1, 8), float(1, 5, 1, 8), { bias: float(2, 2) }),
    /bias float32\[2,2\]/,
  ],
  ['constant of the wrong size', () => g.constant([1, 2, 3], [2]), /3 elements do not fill shape \[2\]/],
];

for (const [fault, build, message] of faults) {
  t.test(`${fault} is refused by name`, async t => {
    t.throws(build, { name: GraphError.name, message });
  });
}
