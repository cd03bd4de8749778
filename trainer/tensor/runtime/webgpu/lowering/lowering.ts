import type { PagedAttentionAttributes } from '../../../graph/operations/device.ts';
import { SAMPLE_SETTINGS } from '../../../graph/operations/device.ts';
import { operations } from '../../../graph/operations/index.ts';
import type { ReduceAttributes } from '../../../graph/operations/reduction.ts';
import { type Graph, type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { FLOAT32_PRODUCTS, type MatrixMultiplication } from '../device/precision.ts';
import { MAX_AXES, pointwise } from '../kernels/pointwise.ts';
import { type Reduction, type RowReduction, reduceMiddle, reduceRows } from '../kernels/reduce.ts';
import { gatherRows, inverseRms, putLast, rope, scatterAdd, takeLast } from '../kernels/rows.ts';
import { copyBox, replaceRows } from '../shaders/copy.ts';
import { attendPages } from '../shaders/paged-attention.ts';
import { sampleRows } from '../shaders/sample.ts';
import { broadcastStrides, collapse, splitAxes } from './layout.ts';
import { lowerAttention, lowerAttentionGradient } from './lower-attention.ts';
import { lowerMatmul } from './lower-matmul.ts';
import { lowerConcat, lowerPad, lowerSlice, lowerTranspose, repeat } from './lower-movement.ts';
import { type Program, ProgramBuilder } from './program.ts';
import type { ScratchSpace } from './slices.ts';
import type { DeviceValue, KernelDispatch } from './step.ts';

/** Adds the steps of one node, and gives its tensor an array. */
export type Lowering = (builder: ProgramBuilder, node: Tensor) => void;

/**
 * Writes a graph as dispatches.
 * @param products how the device multiplies matrices
 * @param most elements of an array that a shader can be given: steps over larger ones are cut in pieces
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
    const operands = node.inputs.map(input => ({ value: builder.valueOf(input), shape: input.shape }));
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

/** A fold along the last axis of a tensor, computed once for all who need it. */
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
    // An input that nobody else reads is changed where it is.
    const own = table.operation === 'input' && builder.usersOf(table).length === 1;
    const given = builder.valueOf(table);
    const value = own ? given : builder.allocate(given.length);
    if (!own) builder.add(...copyOf(given, value, builder));
    builder.add(replaceRows(value, builder.valueOf(rows), builder.valueOf(places)));
    builder.bind(node, value);
  },
  pagedAttention: (builder, node) => {
    const operands = node.inputs.map(({ dtype, shape }, i) => ({
      dtype,
      shape,
      value: builder.valueOf(node.inputs[i]),
    }));
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
