import { type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { RuntimeError } from '../../runtime-error.ts';
import { zeros } from '../kernels/rows.ts';
import { copyBox, MAX_COPY_AXES } from '../shaders/copy.ts';
import { broadcastStrides, collapse } from './layout.ts';
import type { ProgramBuilder } from './program.ts';
import type { ScratchSpace } from './slices.ts';
import type { DeviceValue, KernelDispatch } from './step.ts';

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
  const [x] = node.inputs;
  const permutation = node.attributes.permutation as readonly number[];
  const strides = stridesOf(x.shape);
  const source = permutation.map(axis => strides[axis]);
  const value = builder.valueOf(x);
  builder.add(
    ...copy(
      builder,
      node.shape,
      { value, start: 0, strides: source },
      whole(builder.place(node), node.shape),
    ),
  );
}

export function lowerSlice(builder: ProgramBuilder, node: Tensor): void {
  const [x] = node.inputs;
  const { axis, start } = node.attributes as { axis: number; start: number };
  const strides = stridesOf(x.shape);
  const value = builder.valueOf(x);
  const from = start * strides[axis];
  builder.add(
    ...copy(builder, node.shape, { value, start: from, strides }, whole(builder.place(node), node.shape)),
  );
}

export function lowerPad(builder: ProgramBuilder, node: Tensor): void {
  const [x] = node.inputs;
  const { axis, before } = node.attributes as { axis: number; before: number };
  const strides = stridesOf(node.shape);
  const value = builder.valueOf(x);
  const result = builder.place(node);
  builder.add(...zeros(result, builder));
  builder.add(
    ...copy(builder, x.shape, whole(value, x.shape), {
      value: result,
      start: before * strides[axis],
      strides,
    }),
  );
}

export function lowerConcat(builder: ProgramBuilder, node: Tensor): void {
  const axis = node.attributes.axis as number;
  const strides = stridesOf(node.shape);
  const result = builder.place(node);
  let start = 0;
  for (const part of node.inputs) {
    const value = builder.valueOf(part);
    builder.add(
      ...copy(builder, part.shape, whole(value, part.shape), {
        value: result,
        start: start * strides[axis],
        strides,
      }),
    );
    start += part.shape[axis];
  }
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
