import { type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { RuntimeError } from '../../runtime-error.ts';
import { zeros } from '../kernels/rows.ts';
import { copyBox, MAX_COPY_AXES } from '../shaders/copy.ts';
import {
  broadcastStrides,
  collapse,
  type DeviceValue,
  type KernelDispatch,
  type ProgramBuilder,
  type ScratchSpace,
} from './program.ts';

/** A tensor's elements repeated to a shape it broadcasts to; its own array where nothing repeats. */
export function repeat(builder: ProgramBuilder, value: DeviceValue, from: Shape, to: Shape): DeviceValue {
  if (sizeOf(from) === sizeOf(to)) return value;
  const result = builder.allocate(sizeOf(to));
  builder.add(
    ...copy(builder, to, { value, start: 0, strides: broadcastStrides(from, to) }, whole(result, to)),
  );
  return result;
}

export function lowerTranspose(builder: ProgramBuilder, node: Tensor): void {
  const strides = stridesOf(node.inputs[0].shape);
  const permutation = node.attributes.permutation as readonly number[];
  copyFrom(
    builder,
    node,
    0,
    permutation.map(axis => strides[axis]),
  );
}

export function lowerSlice(builder: ProgramBuilder, node: Tensor): void {
  const { axis, start } = node.attributes as { axis: number; start: number };
  const strides = stridesOf(node.inputs[0].shape);
  copyFrom(builder, node, start * strides[axis], strides);
}

export function lowerPad(builder: ProgramBuilder, node: Tensor): void {
  const { axis, before } = node.attributes as { axis: number; before: number };
  const result = builder.place(node);
  builder.add(...zeros(result, builder));
  copyInto(builder, node.inputs[0], node, result, before * stridesOf(node.shape)[axis]);
}

export function lowerConcat(builder: ProgramBuilder, node: Tensor): void {
  const axis = node.attributes.axis as number;
  const result = builder.place(node);
  let start = 0;
  for (const part of node.inputs) {
    copyInto(builder, part, node, result, start * stridesOf(node.shape)[axis]);
    start += part.shape[axis];
  }
}

/** Gives a node the elements of its input that strides reach from `start` on. */
function copyFrom(builder: ProgramBuilder, node: Tensor, start: number, strides: readonly number[]): void {
  const value = builder.valueOf(node.inputs[0]);
  builder.add(
    ...copy(builder, node.shape, { value, start, strides }, whole(builder.place(node), node.shape)),
  );
}

/** Copies a tensor into a node's array, from the element `start` on. */
function copyInto(builder: ProgramBuilder, x: Tensor, node: Tensor, value: DeviceValue, start: number): void {
  const source = whole(builder.valueOf(x), x.shape);
  builder.add(...copy(builder, x.shape, source, { value, start, strides: stridesOf(node.shape) }));
}

/** Position of a box in an array; strides outermost first. */
interface Box {
  readonly value: DeviceValue;
  readonly start: number;
  readonly strides: readonly number[];
}

function whole(value: DeviceValue, shape: Shape): Box {
  return { value, start: 0, strides: stridesOf(shape) };
}

/** Copies a box of this shape. */
function copy(scratch: ScratchSpace, shape: Shape, source: Box, result: Box): KernelDispatch[] {
  const { extents, strides } = collapse(shape, [source.strides, result.strides]);
  if (extents.length > MAX_COPY_AXES) {
    throw new RuntimeError(
      `the WebGPU runtime moves elements along at most ${MAX_COPY_AXES} axes; [${shape.join(',')}] needs ${extents.length}`,
    );
  }
  return copyBox(extents, { ...source, strides: strides[0] }, { ...result, strides: strides[1] }, scratch);
}
