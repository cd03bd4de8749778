import t from 'tap';
import { GraphBuilder, type Tensor } from './graph.ts';
import { interpret } from './interpreter.test-data.ts';
import { GraphError } from './tensor.ts';

t.test('a program is evaluated as written, in float64', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2, 2]);
  const w = g.parameter('w', [2, 1]);
  g.output('y', g.tanh(g.add(g.matmul(x, w), 1)));
  const { y } = interpret(g.build(), { x: [1, 2, 3, 4], w: [0.1, -0.2] });
  const expected = [Math.tanh(0.1 - 0.4 + 1), Math.tanh(0.3 - 0.8 + 1)];
  t.ok(expected.every((value, i) => Math.abs(value - y[i]) < 1e-15));
});

t.test('equal nodes are built once, and nodes nobody needs are left out', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [3]);
  t.equal(g.exp(x), g.exp(x));
  t.equal(g.mul(x, 2), g.mul(x, 2));
  t.not(g.slice(x, 0, 0, 1), g.slice(x, 0, 0, 2));
  g.sin(x);
  g.output('y', g.exp(x));
  t.strictSame(
    g.build().nodes.map(node => node.operation),
    ['input', 'exp'],
  );
});

t.test('steps that change nothing give their input back', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2, 3]);
  for (const same of [
    g.add(x, 0),
    g.add(0, x),
    g.sub(x, 0),
    g.mul(x, 1),
    g.mul(g.broadcastTo(g.constant(1), [3]), x),
    g.div(x, 1),
    g.reshape(x, [2, -1]),
    g.reshape(g.reshape(x, [6]), [2, 3]),
    g.transpose(g.transpose(x, [1, 0]), [1, 0]),
    g.broadcastTo(x, [2, 3]),
    g.slice(x, 1, 0, 3),
    g.pad(x, 0, 0, 0),
    g.concat([x], 0),
    g.sumTo(x, [2, 3]),
    g.cast(x, 'float32'),
    g.neg(g.neg(x)),
    g.sum(x, []),
  ]) {
    t.equal(same, x);
  }
  t.not(g.mul(x, g.constant(1, [4, 2, 3])), x, 'a one that broadcasts is not nothing');
});

t.test('small constants are computed when built', async t => {
  const g = new GraphBuilder();
  const table = g.neg(g.constant([1, 2, 3]));
  t.equal(table.operation, 'constant');
  t.strictSame([...(table.attributes.data as Float32Array)], [-1, -2, -3]);
  t.equal(g.neg(g.constant([1, 2])).operation, 'constant');
  t.equal(g.exp(g.constant(new Float32Array(100_000))).operation, 'exp');
});

t.test('a scale of columns moves into the smaller matrix', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [64, 4]);
  const scale = g.parameter('scale', [4]);
  const product = g.matmul(g.mul(x, scale), g.parameter('w', [3, 4]), { transposeB: true });
  t.equal(product.inputs[0], x);
  const few = g.input('few', 'float32', [2, 4]);
  const kept = g.matmul(g.mul(few, scale), g.parameter('w', [3, 4]), { transposeB: true });
  t.equal(kept.inputs[0].operation, 'mul');
  const alike = new GraphBuilder({ rowsAlike: true });
  const many = alike.mul(alike.input('x', 'float32', [64, 4]), alike.parameter('scale', [4]));
  t.equal(alike.matmul(many, alike.parameter('w', [3, 4]), { transposeB: true }).inputs[0], many);
});

t.test('parameters are known by name', async t => {
  const g = new GraphBuilder();
  const w = g.parameter('w', [2]);
  t.equal(g.parameter('w', [2]), w);
  t.throws(() => g.parameter('w', [3]), /parameter 'w' is float32\[2\], asked for as float32\[3\]/);
  t.throws(() => g.input('w', 'float32', [2]), /'w' is already an input or parameter/);
  t.throws(() => g.output('w', w) ?? g.output('w', w), /output 'w' is defined twice/);
  t.throws(() => new GraphBuilder().build(), /at least one output/);
  t.throws(() => new GraphBuilder().exp(w), /another GraphBuilder/);
});

t.test('inputs are declared whether used or not; unused parameters go', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', []);
  g.input('unused', 'float32', []);
  g.parameter('spare', [2]);
  g.output('y', g.neg(x));
  const graph = g.build();
  t.strictSame([...graph.inputs.keys()], ['x', 'unused']);
  t.strictSame([...graph.parameters.keys()], []);
});

t.test('clip keeps values between its bounds', async t => {
  const g = new GraphBuilder();
  g.output('clip', g.clip(g.input('x', 'float32', [1, 3]), -1, 1));
  const { clip } = interpret(g.build(), { x: [1000, 1001, -5] });
  t.strictSame([...clip], [1, 1, -1]);
});

t.test('the interpreter names what is missing', async t => {
  const g = new GraphBuilder();
  g.output('y', g.neg(g.parameter('w', [2])));
  t.throws(() => interpret(g.build(), {}), /no value given for parameter 'w'/);
  t.throws(() => interpret(g.build(), { w: [1] }), /1 elements for shape \[2\]/);
});

const g = new GraphBuilder();
const float = (...shape: number[]): Tensor => g.input(`float ${g.nodes.length}`, 'float32', shape);
const ids = (...shape: number[]): Tensor => g.input(`ids ${g.nodes.length}`, 'int32', shape);

const faults: readonly [fault: string, build: () => unknown, message: RegExp][] = [
  ['unknown operation', () => g.apply('frobnicate', []), /unknown operation 'frobnicate'; known: abs,/],
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
  [
    'reshape with a free extent that is not an integer',
    () => g.reshape(float(2, 3), [4, -1]),
    /does not fit/,
  ],
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
    () => g.sample(float(4, 9), float(4, 3)),
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
