import { Random } from '../../../shared/random.ts';
import { gradients } from './gradients.ts';
import { type Graph, GraphBuilder } from './graph.ts';
import { type DType, type Shape, sizeOf, type Tensor } from './tensor.ts';

/** A named input of a case, with values away from kinks and poles. */
export interface CaseInput {
  readonly dtype: DType;
  readonly shape: Shape;
  readonly values: readonly number[];
}

/** A small program around one operation; every runtime must agree with the interpreter on it. */
export interface OperationCase {
  readonly operation: string;
  readonly title: string;
  readonly inputs: Readonly<Record<string, CaseInput>>;
  /** Float inputs with a gradient that is checked. */
  readonly differentiate: readonly string[];
  build(g: GraphBuilder, inputs: Readonly<Record<string, Tensor>>): Tensor;
}

const random = Random.fromSeed(20_240);

/** Uniform in [low, high), drawn once when the module loads. */
function floats(shape: Shape, low = -2, high = 2): CaseInput {
  const values = Array.from({ length: sizeOf(shape) }, () =>
    Math.fround(low + (high - low) * random.float()),
  );
  return { dtype: 'float32', shape, values };
}

/** Numbers at least 0.1 apart from each other, so that maxima and comparisons are not near ties. */
function distinct(shape: Shape): CaseInput {
  const values = random.shuffle(Array.from({ length: sizeOf(shape) }, (_, i) => Math.fround(i * 0.17 - 1)));
  return { dtype: 'float32', shape, values };
}

function ids(shape: Shape, below: number): CaseInput {
  return {
    dtype: 'int32',
    shape,
    values: Array.from({ length: sizeOf(shape) }, () => random.integer(below)),
  };
}

function flags(shape: Shape): CaseInput {
  return { dtype: 'bool', shape, values: Array.from({ length: sizeOf(shape) }, () => random.integer(2)) };
}

/** An order of four rows, and its inverse. */
const order: CaseInput = { dtype: 'int32', shape: [4], values: [2, 0, 3, 1] };
const inverse: CaseInput = { dtype: 'int32', shape: [4], values: [1, 3, 0, 2] };

type Build = OperationCase['build'];

function define(
  operation: string,
  title: string,
  inputs: OperationCase['inputs'],
  build: Build,
  differentiate?: readonly string[],
): OperationCase {
  const all = Object.keys(inputs).filter(name => inputs[name].dtype === 'float32');
  return { operation, title, inputs, build, differentiate: differentiate ?? all };
}

const positive = { x: floats([3, 5], 0.3, 3) };
const signed = { x: floats([3, 5], 0.1, 2) };
signed.x = { ...signed.x, values: signed.x.values.map((value, i) => (i % 2 === 0 ? value : -value)) };

const unaryCases = (
  ['neg', 'exp', 'abs', 'sigmoid', 'silu', 'tanh', 'erf', 'cos', 'sin', 'relu', 'reciprocal', 'sign'] as const
).map(name => define(name, 'of positive and negative numbers', signed, (g, { x }) => g[name](x)));

const pairs = { a: distinct([2, 3, 4]), b: floats([3, 1], 3.03, 3.06) };
const binaryCases = (['add', 'sub', 'mul', 'div', 'maximum', 'minimum'] as const).flatMap(name => [
  define(
    name,
    'with broadcasting',
    { a: distinct([2, 3, 4]), b: floats([3, 1], 0.72, 0.74) },
    (g, { a, b }) => g[name](a, b),
  ),
  define(name, 'of equal shapes', { a: distinct([2, 5]), b: floats([2, 5], 0.43, 0.45) }, (g, { a, b }) =>
    g[name](a, b),
  ),
  define(name, 'with a number', { a: distinct([2, 5]) }, (g, { a }) => g[name](a, 0.44)),
]);
const integerCases = (['add', 'sub', 'mul', 'maximum', 'minimum'] as const).map(name =>
  define(name, 'of integers', { a: ids([2, 5], 9), b: ids([5], 9) }, (g, { a, b }) => g[name](a, b)),
);
const comparisonCases = (['less', 'greater', 'equal'] as const).flatMap(name => [
  define(name, 'of floats', pairs, (g, { a, b }) => g[name](a, b)),
  define(name, 'of integers', { a: ids([4, 6], 4), b: ids([6], 4) }, (g, { a, b }) => g[name](a, b)),
]);

const angles = { cos: floats([2, 3, 4], -1, 1), sin: floats([2, 3, 4], -1, 1) };

const attentionInputs = { q: floats([2, 5, 4, 8]), k: floats([2, 5, 4, 8]), v: floats([2, 5, 4, 8]) };
const groupedInputs = { q: floats([2, 5, 4, 8]), k: floats([2, 5, 2, 8]), v: floats([2, 5, 2, 8]) };
const attentionCases = [
  define('attention', 'with causal mask', attentionInputs, (g, { q, k, v }) =>
    g.attention(q, k, v, { causal: true }),
  ),
  define('attention', 'of grouped queries', groupedInputs, (g, { q, k, v }) =>
    g.attention(q, k, v, { causal: true }),
  ),
  define(
    'attention',
    'with bias',
    { ...groupedInputs, bias: floats([2, 1, 5, 5]) },
    (g, { q, k, v, bias }) => g.attention(q, k, v, { causal: true, scale: 0.3, bias }),
    ['q', 'k', 'v'],
  ),
  define(
    'attention',
    'with one bias for all, not causal',
    { ...attentionInputs, bias: floats([1, 1, 5, 5]) },
    (g, { q, k, v, bias }) => g.attention(q, k, v, { bias }),
    ['q', 'k', 'v'],
  ),
  define(
    'attention',
    'with fewer queries than keys',
    { ...groupedInputs, q: floats([2, 3, 4, 8]) },
    (g, { q, k, v }) => g.attention(q, k, v),
  ),
  define(
    'attention',
    'with gradient of values only',
    attentionInputs,
    (g, { q, k, v }) => g.attention(q, k, v),
    ['v'],
  ),
  define('attentionGradient', 'in one attention feeding another', attentionInputs, (g, { q, k, v }) =>
    g.attention(g.attention(q, k, v), k, v, { causal: true }),
  ),
  define(
    'attention',
    'without gradient',
    groupedInputs,
    (g, { q, k, v }) => g.attention(q, k, v, { causal: true }),
    [],
  ),
  define(
    'attention',
    'with bias, without gradient',
    { ...groupedInputs, bias: floats([2, 1, 5, 5]) },
    (g, { q, k, v, bias }) => g.attention(q, k, v, { causal: true, scale: 0.3, bias }),
    [],
  ),
];

/** At least one case for every primitive; seeded, so the same numbers everywhere. */
export const operationCases: readonly OperationCase[] = [
  ...unaryCases,
  define('log', 'of positive numbers', positive, (g, { x }) => g.log(x)),
  define('sqrt', 'of positive numbers', positive, (g, { x }) => g.sqrt(x)),
  ...binaryCases,
  ...integerCases,
  ...comparisonCases,
  define('logicalAnd', 'with broadcasting', { a: flags([4, 6]), b: flags([6]) }, (g, { a, b }) =>
    g.and(a, b),
  ),
  define('logicalOr', 'with broadcasting', { a: flags([4, 6]), b: flags([6]) }, (g, { a, b }) => g.or(a, b)),
  define('logicalNot', 'of flags', { a: flags([4, 6]) }, (g, { a }) => g.not(a)),
  define(
    'where',
    'of two tensors',
    { c: flags([4, 1]), a: floats([4, 3]), b: floats([3]) },
    (g, { c, a, b }) => g.where(c, a, b),
  ),
  define('where', 'with a number', { c: flags([4, 3]), a: floats([4, 3]) }, (g, { c, a }) =>
    g.where(c, a, -3),
  ),
  define('cast', 'bool to float', { a: flags([4, 3]) }, (g, { a }) => g.cast(a, 'float32')),
  define('cast', 'float to int', { a: distinct([4, 3]) }, (g, { a }) => g.cast(a, 'int32'), []),
  define('cast', 'int to bool', { a: ids([4, 3], 3) }, (g, { a }) => g.cast(a, 'bool')),
  define(
    'stopGradient',
    'in a product',
    { x: floats([3, 2]) },
    (g, { x }) => g.mul(g.stopGradient(x), 2),
    [],
  ),
  define('matmul', 'of matrices', { a: floats([3, 4]), b: floats([4, 5]) }, (g, { a, b }) => g.matmul(a, b)),
  define('matmul', 'of matrices, left transposed', { a: floats([4, 3]), b: floats([4, 5]) }, (g, { a, b }) =>
    g.matmul(a, b, { transposeA: true }),
  ),
  define(
    'matmul',
    'of matrices, both transposed and scaled',
    { a: floats([4, 3]), b: floats([5, 4]) },
    (g, { a, b }) => g.matmul(a, b, { transposeA: true, transposeB: true, scale: 0.5 }),
  ),
  define('matmul', 'of a batch by a matrix', { a: floats([2, 3, 4]), b: floats([4, 5]) }, (g, { a, b }) =>
    g.matmul(a, b),
  ),
  define(
    'matmul',
    'of a batch by a transposed matrix',
    { a: floats([2, 3, 4]), b: floats([5, 4]) },
    (g, { a, b }) => g.matmul(a, b, { transposeB: true }),
  ),
  define(
    'matmul',
    'of batches, right transposed and scaled',
    { a: floats([2, 3, 4, 5]), b: floats([2, 3, 6, 5]) },
    (g, { a, b }) => g.matmul(a, b, { transposeB: true, scale: 0.3 }),
  ),
  define(
    'matmul',
    'of batches, left transposed',
    { a: floats([2, 3, 5, 4]), b: floats([2, 3, 5, 6]) },
    (g, { a, b }) => g.matmul(a, b, { transposeA: true }),
  ),
  define(
    'matmul',
    'of batches that broadcast',
    { a: floats([2, 3, 4, 5]), b: floats([2, 1, 5, 6]) },
    (g, { a, b }) => g.matmul(a, b),
  ),
  define('reshape', 'with a free extent', { x: floats([2, 3, 4]) }, (g, { x }) => g.reshape(x, [4, -1])),
  define('transpose', 'of rank 3', { x: floats([2, 3, 4]) }, (g, { x }) => g.transpose(x, [1, 2, 0])),
  define('transpose', 'of heads', { x: floats([2, 3, 4, 5]) }, (g, { x }) => g.transpose(x, [0, 2, 1, 3])),
  define('broadcastTo', 'along old and new axes', { x: floats([3, 1]) }, (g, { x }) =>
    g.broadcastTo(x, [2, 3, 4]),
  ),
  define('slice', 'of a middle axis', { x: floats([2, 5, 3]) }, (g, { x }) => g.slice(x, 1, 1, 4)),
  define('slice', 'of the last axis', { x: floats([2, 6]) }, (g, { x }) => g.slice(x, -1, 0, 2)),
  define('pad', 'of a middle axis', { x: floats([2, 3, 2]) }, (g, { x }) => g.pad(x, 1, 2, 1)),
  define(
    'concat',
    'of three along the last axis',
    { a: floats([2, 1]), b: floats([2, 3]), c: floats([2, 2]) },
    (g, { a, b, c }) => g.concat([a, b, c], -1),
  ),
  define('sum', 'over all axes', { x: floats([2, 3, 4]) }, (g, { x }) => g.sum(x)),
  define('sum', 'over the last axis, kept', { x: floats([2, 3, 4]) }, (g, { x }) => g.sum(x, [-1], true)),
  define('sum', 'over leading axes', { x: floats([2, 3, 4]) }, (g, { x }) => g.sum(x, [0, 1])),
  define('max', 'over the last axis', { x: distinct([3, 4]) }, (g, { x }) => g.max(x, [-1])),
  define('max', 'over all axes', { x: distinct([3, 4]) }, (g, { x }) => g.max(x)),
  define('softmax', 'of rows', { x: floats([2, 3, 5]) }, (g, { x }) => g.softmax(x)),
  define('logSoftmax', 'of rows', { x: floats([2, 3, 5], -9, 9) }, (g, { x }) => g.logSoftmax(x)),
  define('gather', 'of repeated rows', { table: floats([4, 3]), i: ids([3, 5], 4) }, (g, { table, i }) =>
    g.gather(table, i),
  ),
  define('gather', 'of every row once', { x: floats([4, 3]), i: order, j: inverse }, (g, { x, i, j }) =>
    g.rearrange(x, i, j),
  ),
  define('scatterAddRows', 'with repeated ids', { x: floats([3, 5, 2]), i: ids([3, 5], 4) }, (g, { x, i }) =>
    g.scatterAddRows(x, i, 4),
  ),
  define('takeLast', 'of rows', { x: floats([2, 3, 5]), i: ids([2, 3], 5) }, (g, { x, i }) =>
    g.takeLast(x, i),
  ),
  define('putLast', 'of rows', { x: floats([2, 3]), i: ids([2, 3], 5) }, (g, { x, i }) => g.putLast(x, i, 5)),
  define('rmsNormalize', 'of rows', { x: floats([2, 3, 8]) }, (g, { x }) => g.rmsNormalize(x, 1e-5)),
  define('rmsNormalize', 'with weight', { x: floats([2, 3, 8]), w: floats([8]) }, (g, { x, w }) =>
    g.rmsNorm(x, w, 1e-5),
  ),
  define(
    'matmul',
    'of normalized rows, with a weight that moves to the right side',
    { x: floats([2, 9, 4]), w: floats([4]), m: floats([3, 4]), b: floats([3]) },
    (g, { x, w, m, b }) =>
      g.add(g.matmul(g.reshape(g.rmsNorm(x, w, 1e-5), [18, 4]), m, { transposeB: true }), b),
  ),
  define(
    'matmul',
    'of columns scaled, plus bias',
    { x: floats([18, 4]), w: floats([4]), m: floats([4, 3]), b: floats([3]) },
    (g, { x, w, m, b }) => g.add(b, g.matmul(g.mul(w, x), m, { scale: 0.5 })),
  ),
  define('inverseRms', 'of rows', { x: floats([2, 3, 8]) }, (g, { x }) => g.inverseRms(x, 1e-5)),
  ...attentionCases,
  define(
    'rope',
    'of heads',
    { x: floats([2, 3, 2, 8]), ...angles },
    (g, { x, cos, sin }) => g.rope(x, cos, sin),
    ['x'],
  ),
];

const longInputs = { q: floats([2, 300, 4, 8]), k: floats([2, 300, 2, 8]), v: floats([2, 300, 2, 8]) };

/** Cases too large for finite differences, where a runtime may take a different path than for small ones. */
export const largeCases: readonly OperationCase[] = [
  define('attention', 'of a long sequence', longInputs, (g, { q, k, v }) =>
    g.attention(q, k, v, { causal: true }),
  ),
  define(
    'attention',
    'of a long sequence with bias',
    { ...longInputs, bias: floats([2, 1, 1, 300]) },
    (g, { q, k, v, bias }) => g.attention(q, k, v, { causal: true, bias }),
    ['q', 'k', 'v'],
  ),
  define('matmul', 'of large matrices', { a: floats([300, 70]), b: floats([70, 130]) }, (g, { a, b }) =>
    g.matmul(a, b),
  ),
  define(
    'scatterAddRows',
    'of many rows to a long table',
    { x: floats([16, 128, 128]), i: ids([16, 128], 300) },
    (g, { x, i }) => g.scatterAddRows(x, i, 300),
  ),
  define(
    'scatterAddRows',
    'of many rows',
    { x: floats([16, 128, 128]), i: ids([16, 128], 7) },
    (g, { x, i }) => g.scatterAddRows(x, i, 7),
  ),
];

/** The case as a graph: its value as `y`, and the gradients of a fixed weighting of y as `x.grad`. */
export function caseGraph(operationCase: OperationCase): Graph {
  const g = new GraphBuilder();
  const inputs = Object.fromEntries(
    Object.entries(operationCase.inputs).map(([name, { dtype, shape }]) => [
      name,
      g.input(name, dtype, shape),
    ]),
  );
  const y = operationCase.build(g, inputs);
  g.output('y', y);
  if (y.dtype === 'float32' && operationCase.differentiate.length > 0) {
    const weights = Array.from({ length: sizeOf(y.shape) }, (_, i) => Math.fround(Math.sin(i + 1)));
    const loss = g.sum(g.mul(y, g.constant(weights, y.shape)));
    g.output('loss', loss);
    const wrt = operationCase.differentiate.map(name => inputs[name]);
    gradients(g, loss, wrt).forEach((gradient, i) => {
      g.output(`${operationCase.differentiate[i]}.grad`, gradient);
    });
  }
  return g.build();
}
