import type { PagedAttentionAttributes } from '../../../graph/builder.ts';
import { operations } from '../../../graph/graph.ts';
import {
  type AttentionAttributes,
  type AttentionGradientAttributes,
  attentionSizes,
} from '../../../graph/operations/attention.ts';
import { SAMPLE_SETTINGS } from '../../../graph/operations/device.ts';
import {
  type MatmulAttributes,
  matrixOf,
  type ReduceAttributes,
} from '../../../graph/operations/products.ts';
import { type Graph, type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { FLOAT32_PRODUCTS, type MatrixMultiplication } from '../device/device.ts';
import { MAX_AXES, pointwise } from '../kernels/pointwise.ts';
import { type Reduction, type RowReduction, reduceMiddle, reduceRows } from '../kernels/reduce.ts';
import { gatherRows, inverseRms, putLast, rope, rowDots, scatterAdd, takeLast } from '../kernels/rows.ts';
import { type AttentionOperands, attend, keyValueGradients, queryGradient } from '../shaders/attention.ts';
import { copyBox, replaceRows } from '../shaders/copy.ts';
import { type ProductSizes, product } from '../shaders/matmul.ts';
import { attendPages } from '../shaders/paged-attention.ts';
import { sampleRows } from '../shaders/sample.ts';
import { lowerConcat, lowerPad, lowerSlice, lowerTranspose, repeat } from './lower-movement.ts';
import {
  broadcastStrides,
  collapse,
  type DeviceValue,
  type KernelDispatch,
  type Program,
  ProgramBuilder,
  type ScratchSpace,
  splitAxes,
} from './program.ts';

/** A product; a batch with one shared right side becomes the rows of one matrix. */
function lowerMatmul(builder: ProgramBuilder, node: Tensor): void {
  const attributes = node.attributes as MatmulAttributes;
  const { transposeA, transposeB } = attributes;
  const [a, b] = node.inputs;
  const merge = b.shape.length === 2 && !transposeA;
  const left = merge ? mergeRows(a.shape) : a.shape;
  const result = merge ? mergeRows(node.shape) : node.shape;
  const batch = result.slice(0, -2);
  const one = matrixOf(left, transposeA);
  const other = matrixOf(b.shape, transposeB);
  const strides = [left, b.shape].map(shape => matrixStrides(shape, batch));
  const walk = collapse(batch, [...strides, stridesOf(batch)]);
  const whole = walk.extents.length > 2;
  const operand = (tensor: Tensor, shape: Shape) => {
    const value = builder.valueOf(tensor);
    return whole ? repeat(builder, value, shape, [...batch, ...shape.slice(-2)]) : value;
  };
  const pair = (values: readonly number[], missing: number): [number, number] => [
    values[1] ?? missing,
    values[0] ?? missing,
  ];
  const sizes: ProductSizes = {
    rows: one.rows,
    columns: other.columns,
    inner: one.columns,
    ...(whole
      ? {
          batch: [1, sizeOf(batch)],
          left: [0, one.rows * one.columns],
          right: [0, other.rows * other.columns],
        }
      : {
          batch: pair(walk.extents, 1),
          left: pair(walk.strides[0], 0),
          right: pair(walk.strides[1], 0),
        }),
  };
  builder.add(
    ...product(
      { left: operand(a, left), right: operand(b, b.shape), result: builder.place(node) },
      sizes,
      attributes,
      builder.products,
      builder,
    ),
  );
}

function mergeRows(shape: Shape): Shape {
  return [sizeOf(shape.slice(0, -1)), shape[shape.length - 1]];
}

/** Strides in elements along the axes before the last two, 0 where the tensor repeats. */
function matrixStrides(shape: Shape, batch: Shape): number[] {
  const size = sizeOf(shape.slice(-2));
  return broadcastStrides(shape.slice(0, -2), batch).map(stride => stride * size);
}

function lowerAttention(builder: ProgramBuilder, node: Tensor): void {
  const attributes = node.attributes as AttentionAttributes;
  const operands = operandsOf(builder, node.inputs.slice(0, 3), node.inputs[3]);
  const logSums = logSumsOf(builder, node);
  builder.add(attend(operands, attributes, builder.place(node), logSums));
}

/** All needed gradients of one attention at once. */
function lowerAttentionGradient(builder: ProgramBuilder, node: Tensor): void {
  const [q, k, v, forward, upstream, bias] = node.inputs;
  const { causal, scale } = node.attributes as AttentionGradientAttributes;
  const operands = operandsOf(builder, [q, k, v], bias);
  const { batch, keys, heads, keyHeads, size } = attentionSizes([q, k, v], { causal, scale });
  const dots = builder.allocate(sizeOf(q.shape) / size);
  builder.add(...rowDots(builder.valueOf(upstream), builder.valueOf(forward), size, dots, builder));
  const above = {
    upstream: operandOf(builder, upstream),
    logSums: logSumsOf(builder, forward),
    dots,
  };
  const wanted = new Map(
    builder
      .usersOf(forward)
      .filter(user => user.operation === 'attentionGradient' && user.inputs[4] === upstream)
      .map(user => [user.attributes.wrt as AttentionGradientAttributes['wrt'], user]),
  );
  const place = (wrt: AttentionGradientAttributes['wrt'], like: Tensor): DeviceValue => {
    const tensor = wanted.get(wrt);
    return tensor === undefined ? builder.allocate(sizeOf(like.shape)) : builder.place(tensor);
  };
  if (wanted.has('query')) {
    builder.add(queryGradient(operands, above, { causal, scale }, place('query', q)));
  }
  if (wanted.has('key') || wanted.has('value')) {
    const results = [place('key', k), place('value', v)];
    const apart =
      heads === keyHeads ? results : results.map(() => builder.allocate(batch * keys * heads * size));
    builder.add(keyValueGradients(operands, above, { causal, scale }, apart[0], apart[1]));
    if (apart !== results) {
      const cut = { outer: batch * keys * keyHeads, middle: heads / keyHeads, inner: size };
      results.forEach((result, i) => {
        builder.add(...reduceMiddle('sum', apart[i], cut, result, builder));
      });
    }
  }
}

/** log Σ exp of the scores of an attention's queries, which its gradients need again. */
function logSumsOf(builder: ProgramBuilder, forward: Tensor): DeviceValue {
  const [batch, queries, heads] = forward.shape;
  return builder.share(`log-sums ${forward.id}`, () => builder.allocate(batch * queries * heads));
}

function operandsOf(
  builder: ProgramBuilder,
  inputs: readonly Tensor[],
  bias: Tensor | undefined,
): AttentionOperands {
  const [q, k, v] = inputs.map(input => operandOf(builder, input));
  const added =
    bias === undefined ? { value: builder.scalar(0), shape: [1, 1, 1, 1] } : operandOf(builder, bias);
  return { q, k, v, bias: added };
}

/** A tensor's array with its shape. */
function operandOf(builder: ProgramBuilder, tensor: Tensor) {
  return { value: builder.valueOf(tensor), shape: tensor.shape };
}

/** Adds the steps of one node, and gives its tensor an array. */
type Lowering = (builder: ProgramBuilder, node: Tensor) => void;

/**
 * Writes a graph as dispatches.
 * @param products the device's method of matrix multiplication
 * @param most elements of an array that a shader can bind; steps over larger arrays are cut into pieces
 */
export function lowerToSteps(
  graph: Graph,
  products: MatrixMultiplication = FLOAT32_PRODUCTS,
  most = Infinity,
): Program {
  const builder = new ProgramBuilder(graph, products, most);
  for (const node of graph.nodes) {
    if (builder.isLowered(node)) continue;
    if (node.operation === 'input' || node.operation === 'parameter') builder.place(node);
    else if (node.operation === 'constant') builder.constant(node);
    else {
      const lowering = loweringOf(node.operation);
      if (lowering === undefined)
        throw new Error(`the WebGPU runtime has no lowering for '${node.operation}'`);
      lowering(builder, node);
    }
  }
  return builder.finish();
}

/** The operation's own lowering, or that of all elementwise operations. */
function loweringOf(operation: string): Lowering | undefined {
  if (operations.get(operation)?.elementwise !== undefined) return elementwise(operation);
  return lowerings[operation];
}

/** An element-wise operation; operands that cannot be walked with three strides are repeated first. */
const elementwise =
  (name: string): Lowering =>
  (builder, node) => {
    const operands = node.inputs.map(input => operandOf(builder, input));
    pointwiseOver(builder, name, operands, node.shape, builder.place(node));
  };

function pointwiseOver(
  builder: ProgramBuilder,
  name: string,
  operands: readonly { readonly value: DeviceValue; readonly shape: Shape }[],
  shape: Shape,
  result: DeviceValue,
): void {
  const strides = operands.map(operand => broadcastStrides(operand.shape, shape));
  const walk = collapse(shape, [...strides, stridesOf(shape)]);
  if (walk.extents.length <= MAX_AXES) {
    const own = { extents: walk.extents, strides: walk.strides.slice(0, operands.length) };
    builder.add(
      ...pointwise(
        name,
        operands.map(({ value }) => value),
        own,
        result,
        builder,
      ),
    );
    return;
  }
  const whole = operands.map(({ value, shape: from }) => ({
    value: repeat(builder, value, from, shape),
    shape,
  }));
  pointwiseOver(builder, name, whole, shape, result);
}

const alias: Lowering = (builder, node) => {
  builder.bind(node, builder.valueOf(node.inputs[0]));
};

const cast: Lowering = (builder, node) => {
  const from = node.inputs[0].dtype;
  if (node.dtype === 'bool') elementwise('isNotZero')(builder, node);
  else if (node.dtype === 'int32' && from === 'float32') elementwise('truncate')(builder, node);
  else alias(builder, node);
};

const reduction =
  (how: Reduction): Lowering =>
  (builder, node) => {
    const { axes } = node.attributes as ReduceAttributes;
    const shape = [...node.inputs[0].shape];
    const pending = [...axes];
    let value = builder.valueOf(node.inputs[0]);
    while (pending.length > 0) {
      const end = pending.pop()! + 1;
      let start = end - 1;
      while (pending.length > 0 && pending[pending.length - 1] === start - 1) start = pending.pop()!;
      const cut = splitAxes(shape, start, end);
      const length = cut.outer * cut.inner;
      const result = pending.length === 0 ? builder.place(node) : builder.allocate(length);
      builder.add(...reduceMiddle(how, value, cut, result, builder));
      for (let axis = start; axis < end; axis++) shape[axis] = 1;
      value = result;
    }
  };

/** A reduction along the last axis of a tensor, computed once for all its readers. */
function rowFold(builder: ProgramBuilder, x: Tensor, key: string, how: RowReduction): DeviceValue {
  const { rows, width } = rowsOf(x);
  return builder.share(`${key} of rows of ${width} in ${builder.valueOf(x).id}`, () => {
    const result = builder.allocate(rows);
    builder.add(...reduceRows(how, builder.valueOf(x), { rows, count: width }, result, builder));
    return result;
  });
}

function copyOf(from: DeviceValue, to: DeviceValue, scratch: ScratchSpace): KernelDispatch[] {
  const box = (value: DeviceValue) => ({ value, start: 0, strides: [1] });
  return copyBox([from.length], box(from), box(to), scratch);
}

function rowsOf({ shape }: Tensor): { readonly rows: number; readonly width: number } {
  const width = shape[shape.length - 1];
  return { rows: sizeOf(shape) / width, width };
}

const softmax =
  (name: 'weight' | 'logWeight'): Lowering =>
  (builder, node) => {
    const [x] = node.inputs;
    const shift = rowFold(builder, x, 'largest', 'max');
    const total = rowFold(builder, x, 'weights', { weightsAbove: shift });
    const { rows, width } = rowsOf(x);
    const perRow = (value: DeviceValue) => ({ value, shape: [rows, 1] });
    const operands = [{ value: builder.valueOf(x), shape: [rows, width] }, perRow(shift), perRow(total)];
    pointwiseOver(builder, name, operands, [rows, width], builder.place(node));
  };

function inverseRmsOf(builder: ProgramBuilder, x: Tensor, epsilon: number): DeviceValue {
  const { rows, width } = rowsOf(x);
  return builder.share(`inverse ${epsilon} of rows of ${width} in ${builder.valueOf(x).id}`, () => {
    const squares = rowFold(builder, x, 'squares', 'squares');
    const result = builder.allocate(rows);
    builder.add(...inverseRms(squares, width, epsilon, result, builder));
    return result;
  });
}

const rmsNormalize: Lowering = (builder, node) => {
  const [x] = node.inputs;
  const { rows, width } = rowsOf(x);
  const inverse = inverseRmsOf(builder, x, node.attributes.epsilon as number);
  const operands = [
    { value: builder.valueOf(x), shape: [rows, width] },
    { value: inverse, shape: [rows, 1] },
  ];
  pointwiseOver(builder, 'mul', operands, [rows, width], builder.place(node));
};

const lowerings: Readonly<Record<string, Lowering | undefined>> = {
  cast,
  stopGradient: alias,
  reshape: alias,
  matmul: lowerMatmul,
  transpose: lowerTranspose,
  broadcastTo: (builder, node) => {
    const [x] = node.inputs;
    builder.bind(node, repeat(builder, builder.valueOf(x), x.shape, node.shape));
  },
  slice: lowerSlice,
  pad: lowerPad,
  concat: lowerConcat,
  sum: reduction('sum'),
  max: reduction('max'),
  softmax: softmax('weight'),
  logSoftmax: softmax('logWeight'),
  gather: (builder, node) => {
    const [table, ids] = node.inputs.map(input => builder.valueOf(input));
    const width = sizeOf(node.inputs[0].shape.slice(1));
    builder.add(...gatherRows(table, ids, width, builder.place(node), builder));
  },
  scatterAddRows: (builder, node) => {
    const [updates, ids] = node.inputs.map(input => builder.valueOf(input));
    const width = sizeOf(node.shape.slice(1));
    builder.add(...scatterAdd(updates, ids, { rows: node.shape[0], width }, builder.place(node), builder));
  },
  takeLast: (builder, node) => {
    const [x, ids] = node.inputs.map(input => builder.valueOf(input));
    builder.add(...takeLast(x, ids, rowsOf(node.inputs[0]).width, builder.place(node), builder));
  },
  putLast: (builder, node) => {
    const [values, ids] = node.inputs.map(input => builder.valueOf(input));
    builder.add(...putLast(values, ids, node.attributes.width as number, builder.place(node), builder));
  },
  rmsNormalize,
  inverseRms: (builder, node) => {
    builder.bind(node, inverseRmsOf(builder, node.inputs[0], node.attributes.epsilon as number));
  },
  rope: (builder, node) => {
    const [x, cos, sin] = node.inputs.map(input => builder.valueOf(input));
    const [batch, time, , size] = node.shape;
    builder.add(...rope(x, [cos, sin], { tokens: batch * time, size }, builder.place(node), builder));
  },
  putRows: (builder, node) => {
    const [table, rows, places] = node.inputs;
    // An input with no other reader is changed in place.
    const own = table.operation === 'input' && builder.usersOf(table).length === 1;
    const given = builder.valueOf(table);
    const value = own ? given : builder.allocate(given.length);
    if (!own) builder.add(...copyOf(given, value, builder));
    builder.add(replaceRows(value, builder.valueOf(rows), builder.valueOf(places)));
    builder.bind(node, value);
  },
  pagedAttention: (builder, node) => {
    const operands = node.inputs.map(input => ({ dtype: input.dtype, ...operandOf(builder, input) }));
    const attributes = node.attributes as PagedAttentionAttributes;
    builder.add(attendPages(operands, attributes, builder.place(node)));
  },
  sample: (builder, node) => {
    const [logits] = node.inputs;
    const [own, settings] = node.inputs.map(input => builder.valueOf(input));
    const { rows, width } = rowsOf(logits);
    const shift = rowFold(builder, logits, 'largest', 'max');
    const weights = builder.allocate(rows * width);
    const strides = [
      [1, width],
      [0, 1],
      [0, SAMPLE_SETTINGS],
    ];
    const walk = { extents: [width, rows], strides };
    builder.add(...pointwise('tempered', [own, shift, settings], walk, weights, builder));
    builder.add(...sampleRows({ logits: own, weights, settings }, width, builder.place(node), builder));
  },
  attention: lowerAttention,
  attentionGradient: lowerAttentionGradient,
};
