import { operations } from '../../graph/graph.ts';
import {
  NF4_LEVELS,
  QUANTIZED_BLOCK,
  type QuantizedMatmulAttributes,
} from '../../graph/operations/blocks.ts';
import type { MatmulAttributes, ReduceAttributes } from '../../graph/operations/products.ts';
import { type Graph, sameShape, sizeOf, type Tensor } from '../../graph/tensor.ts';
import { lowerAttention, lowerAttentionGradient, lowerBlockMatmul, lowerBlockRows } from './lower-fused.ts';
import {
  type EmitOptions,
  MICROSOFT,
  ModelBuilder,
  type ModelOptions,
  type OnnxModel,
  TENSOR_TYPE,
} from './model-builder.ts';

/** MatMulBnb4's number for NF4. */
const NORMAL_FLOAT = 1;
const BYTE_VALUES = 256;

/**
 * NF4 has one kernel that unpacks and multiplies, only with the transpose (ONNX Runtime 1.30 ignores `transB` on the
 * processor). All other weights are unpacked to float32 before a product. Unpacking waits for x; otherwise ONNX Runtime
 * would unpack all weights at the start and keep them from the forward to the backward pass.
 */
function lowerQuantizedMatmul(
  context: ModelBuilder,
  node: Tensor,
  [x, codes, scales]: readonly string[],
  result: string,
): void {
  const { kind, outputs, inputs, transposed } = node.attributes as QuantizedMatmulAttributes;
  if (kind === 'nf4' && !transposed) {
    const attributes = { K: inputs, N: outputs, block_size: QUANTIZED_BLOCK, quant_type: NORMAL_FLOAT };
    context.emit('MatMulBnb4', [x, codes, scales], { domain: MICROSOFT, attributes }, result);
    return;
  }
  const unpack = kind === 'int8' ? unpackInt8 : unpackNormalFloat;
  const weights = unpack(context, { codes, scales, waitFor: x, shape: [outputs, inputs] });
  context.emit('Gemm', [x, weights], { attributes: { transB: Number(!transposed) } }, result);
}

interface Packed {
  readonly codes: string;
  readonly scales: string;
  /** Value that must exist first. */
  readonly waitFor: string;
  readonly shape: readonly [outputs: number, inputs: number];
}

function unpackInt8(context: ModelBuilder, { codes, scales, waitFor }: Packed): string {
  const waiting = context.emit('Add', [scales, context.zeroAfter(waitFor)]);
  const attributes = { axis: 1, block_size: QUANTIZED_BLOCK };
  return context.emit('DequantizeLinear', [codes, waiting], { attributes });
}

/** Looks a byte up in a table of the pairs of levels of its two codes. */
function unpackNormalFloat(context: ModelBuilder, { codes, scales, waitFor, shape }: Packed): string {
  const pairs = new Float32Array(2 * BYTE_VALUES);
  for (let byte = 0; byte < BYTE_VALUES; byte++) {
    pairs[2 * byte] = NF4_LEVELS[byte >> 4];
    pairs[2 * byte + 1] = NF4_LEVELS[byte & 0xf];
  }
  const waiting = context.emit('BitwiseOr', [codes, context.zeroAfter(waitFor, 'uint8')]);
  const indices = context.emit('Cast', [waiting], { attributes: { to: TENSOR_TYPE.int32 } });
  const levels = context.emit('Gather', [context.floats(pairs, [BYTE_VALUES, 2]), indices]);
  const blocks = context.reshape(levels, [-1, QUANTIZED_BLOCK]);
  const scaled = context.emit('Mul', [blocks, context.reshape(scales, [-1, 1])]);
  return context.reshape(scaled, shape);
}

/** Emits the ONNX nodes of one graph node; the last node's result has the given name. */
type Lowering = (context: ModelBuilder, node: Tensor, inputs: readonly string[], result: string) => void;

/** Rows up to which a scatter-add on several threads is a product with a one-hot matrix. */
const ONE_HOT_ROWS = 128;

/** Writes a graph as an ONNX model; parameters become inputs next to the graph's own. */
export function lower(graph: Graph, options: ModelOptions): OnnxModel {
  const context = new ModelBuilder(graph, options);
  for (const node of graph.nodes) {
    if (context.isLowered(node)) continue;
    if (node.operation === 'constant') {
      context.bind(node, context.constant(node));
      continue;
    }
    if (node.operation === 'stopGradient') {
      context.bind(node, context.valueOf(node.inputs[0]));
      continue;
    }
    const lowering = loweringOf(node.operation);
    if (lowering === undefined) throw new Error(`the ONNX runtime has no lowering for '${node.operation}'`);
    const result = context.resultName(node);
    lowering(
      context,
      node,
      node.inputs.map(input => context.valueOf(input)),
      result,
    );
    if (!context.isLowered(node)) context.bind(node, result);
  }
  return context.finish();
}

/** The operation's own lowering, or the operator that an elementwise operation names. */
function loweringOf(operation: string): Lowering | undefined {
  const operator = operations.get(operation)?.elementwise?.onnx;
  return lowerings[operation] ?? (operator === undefined ? undefined : direct(operator));
}

function direct(opType: string, options: EmitOptions = {}): Lowering {
  return (context, _node, inputs, result) => {
    context.emit(opType, inputs, options, result);
  };
}

function reduction(opType: string): Lowering {
  return (context, node, [x], result) => {
    const { axes, keepDims } = node.attributes as ReduceAttributes;
    context.emit(opType, [x, context.int64(axes)], { attributes: { keepdims: keepDims ? 1 : 0 } }, result);
  };
}

const matmul: Lowering = (context, node, [a, b], result) => {
  const { transposeA, transposeB, scale } = node.attributes as MatmulAttributes;
  const attributes = { transA: Number(transposeA), transB: Number(transposeB), alpha: { float: scale } };
  const sum = biasedSum(context, node);
  if (sum !== undefined) {
    const name = context.resultName(sum.node);
    context.emit('Gemm', [a, b, sum.bias], { attributes }, name);
    context.bind(sum.node, name);
  } else if (!transposeA && !transposeB && scale === 1) {
    context.emit('MatMul', [a, b], {}, result);
  } else if (node.inputs.every(input => input.shape.length === 2)) {
    context.emit('Gemm', [a, b], { attributes }, result);
  } else {
    context.emit('FusedMatMul', [a, b], { domain: MICROSOFT, attributes }, result);
  }
};

/** The addition of a bias per column, if it is the only reader of a matrix product. */
function biasedSum(context: ModelBuilder, product: Tensor): { node: Tensor; bias: string } | undefined {
  const users = context.usersOf(product);
  if (
    users.length !== 1 ||
    context.isOutput(product) ||
    users[0].operation !== 'add' ||
    product.inputs.some(input => input.shape.length !== 2)
  ) {
    return undefined;
  }
  const bias = columnOperand(context, users[0], product);
  return bias === undefined ? undefined : { node: users[0], bias };
}

const slice: Lowering = (context, node, [x], result) => {
  const { axis, start, end } = node.attributes as { axis: number; start: number; end: number };
  const bounds = [[start], [end], [axis]].map(values => context.int64(values));
  context.emit('Slice', [x, ...bounds], {}, result);
};

const pad: Lowering = (context, node, [x], result) => {
  const { axis, before, after } = node.attributes as { axis: number; before: number; after: number };
  const pads = [before, after].flatMap(count => node.shape.map((_, i) => (i === axis ? count : 0)));
  context.emit('Pad', [x, context.int64(pads)], {}, result);
};

/**
 * ScatterND adds fastest, but on several threads it races when ids repeat (ONNX Runtime 1.30: sums differ from run
 * to run). There a small table is a product with a one-hot matrix, a large one goes through ScatterElements.
 */
const scatterAddRows: Lowering = (context, node, [updates, ids], result) => {
  const [{ shape }, { shape: idShape }] = node.inputs;
  const rows = node.shape[0];
  const count = sizeOf(idShape);
  const width = sizeOf(shape) / count;
  if (context.threads === 1) {
    const wide = context.emit('Cast', [ids], { attributes: { to: TENSOR_TYPE.int64 } });
    const indices = context.reshape(wide, [...idShape, 1]);
    const attributes = { reduction: 'add' };
    context.emit('ScatterND', [context.filled(node.shape, 0), indices, updates], { attributes }, result);
    return;
  }
  const column = context.reshape(ids, [count, 1]);
  const flat = context.reshape(updates, [count, width]);
  const sums =
    rows <= ONE_HOT_ROWS
      ? oneHotSums(context, column, flat, rows)
      : elementSums(context, column, flat, rows, width);
  context.reshape(sums, node.shape, result);
};

function oneHotSums(context: ModelBuilder, ids: string, updates: string, rows: number): string {
  const range = context.ints([...Array(rows).keys()], [1, rows]);
  const hits = context.emit('Cast', [context.emit('Equal', [ids, range])], {
    attributes: { to: TENSOR_TYPE.float32 },
  });
  return context.emit('Gemm', [hits, updates], { attributes: { transA: 1 } });
}

function elementSums(
  context: ModelBuilder,
  ids: string,
  updates: string,
  rows: number,
  width: number,
): string {
  const indices = context.emit('Expand', [ids, context.int64([1, width])]);
  const attributes = { axis: 0, reduction: 'add' };
  return context.emit('ScatterElements', [context.filled([rows, width], 0), indices, updates], {
    attributes,
  });
}

const takeLast: Lowering = (context, node, [x, ids], result) => {
  const column = context.reshape(ids, [...node.shape, 1]);
  const taken = context.emit('GatherElements', [x, column], { attributes: { axis: -1 } });
  context.reshape(taken, node.shape, result);
};

const putLast: Lowering = (context, node, [values, ids], result) => {
  const column = [...node.inputs[0].shape, 1];
  const at = context.reshape(ids, column);
  const what = context.reshape(values, column);
  context.emit(
    'ScatterElements',
    [context.filled(node.shape, 0), at, what],
    { attributes: { axis: -1 } },
    result,
  );
};

const rmsNormalize: Lowering = (context, node, [x], result) => {
  const epsilon = node.attributes.epsilon as number;
  const width = node.shape[node.shape.length - 1];
  const attributes = { axis: -1, epsilon: { float: epsilon } };
  const users = context.usersOf(node);
  const weight =
    users.length === 1 && !context.isOutput(node) && users[0].operation === 'mul'
      ? columnOperand(context, users[0], node)
      : undefined;
  if (weight !== undefined) {
    const name = context.resultName(users[0]);
    context.emit('SimplifiedLayerNormalization', [x, weight], { attributes }, name);
    context.bind(users[0], name);
    return;
  }
  const inverse = context
    .usersOf(node.inputs[0])
    .find(user => user.operation === 'inverseRms' && user.attributes.epsilon === epsilon);
  const results = [result];
  if (inverse !== undefined && !context.isLowered(inverse)) {
    const name = context.resultName(inverse);
    results.push(name);
    context.bind(inverse, name);
  }
  context.emitMany('SimplifiedLayerNormalization', [x, context.filled([width], 1)], results, { attributes });
};

/** The other operand of a binary node, if it has one value per column and is already available. */
function columnOperand(context: ModelBuilder, node: Tensor, operand: Tensor): string | undefined {
  const other = node.inputs.find(input => input !== operand);
  const width = operand.shape[operand.shape.length - 1];
  if (other === undefined || !sameShape(other.shape, [width]) || !context.isLowered(other)) return undefined;
  return context.valueOf(other);
}

const inverseRms: Lowering = (context, node, [x], result) => {
  const squares = context.emit('Mul', [x, x]);
  const mean = context.emit('ReduceMean', [squares, context.int64([-1])], { attributes: { keepdims: 1 } });
  const shifted = context.emit('Add', [mean, context.float(node.attributes.epsilon as number)]);
  context.emit('Reciprocal', [context.emit('Sqrt', [shifted])], {}, result);
};

/** The sigmoid that silu and its gradient share; ONNX Runtime's own fused activation is slower than the two steps. */
function sigmoidOf(context: ModelBuilder, node: Tensor, x: string): string {
  const [argument] = node.inputs;
  const shared = context.usersOf(argument).find(user => user.operation === 'sigmoid');
  if (shared === undefined) return context.emit('Sigmoid', [x]);
  if (!context.isLowered(shared)) {
    const name = context.resultName(shared);
    context.emit('Sigmoid', [x], {}, name);
    context.bind(shared, name);
  }
  return context.valueOf(shared);
}

const rope: Lowering = (context, node, [x, cos, sin], result) => {
  const [batch, time, heads, size] = node.shape;
  const rows = context.reshape(x, [batch, time, heads * size]);
  const rotated = context.emit('RotaryEmbedding', [rows, cos, sin], { attributes: { num_heads: heads } });
  context.reshape(rotated, node.shape, result);
};

const lastAxis: EmitOptions = { attributes: { axis: -1 } };

const lowerings: Readonly<Record<string, Lowering | undefined>> = {
  silu: (context, node, [x], result) => {
    context.emit('Mul', [x, sigmoidOf(context, node, x)], {}, result);
  },
  cast: (context, node, [x], result) => {
    context.emit('Cast', [x], { attributes: { to: TENSOR_TYPE[node.dtype] } }, result);
  },
  matmul,
  quantizedMatmul: lowerQuantizedMatmul,
  blockMatmul: lowerBlockMatmul,
  blockRows: lowerBlockRows,
  reshape: (context, node, [x], result) => {
    context.reshape(x, node.shape, result);
  },
  transpose: (context, node, [x], result) => {
    const perm = node.attributes.permutation as readonly number[];
    context.emit('Transpose', [x], { attributes: { perm } }, result);
  },
  broadcastTo: (context, node, [x], result) => {
    context.emit('Expand', [x, context.int64(node.shape)], {}, result);
  },
  slice,
  pad,
  concat: (context, node, inputs, result) => {
    context.emit('Concat', inputs, { attributes: { axis: node.attributes.axis as number } }, result);
  },
  sum: reduction('ReduceSum'),
  max: reduction('ReduceMax'),
  softmax: direct('Softmax', lastAxis),
  logSoftmax: direct('LogSoftmax', lastAxis),
  gather: (context, _node, [table, ids], result) => {
    context.emit('Gather', [table, ids], { attributes: { axis: 0 } }, result);
  },
  scatterAddRows,
  takeLast,
  putLast,
  rmsNormalize,
  inverseRms,
  rope,
  attention: lowerAttention,
  attentionGradient: lowerAttentionGradient,
};
