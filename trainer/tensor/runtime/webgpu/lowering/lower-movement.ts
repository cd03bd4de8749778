import { type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { RuntimeError } from '../../runtime-error.ts';
import { zeros } from '../kernels/rows.ts';
import { copyBox, MAX_COPY_AXES } from '../shaders/copy.ts';
import { broadcastStrides, collapse } from './layout.ts';
import type { Room } from './parts.ts';
import type { ProgramBuilder } from './program.ts';
import type { Step, Value } from './step.ts';

/** A tensor's elements repeated to a shape it broadcasts to; its own array where nothing repeats. */
export function repeat(builder: ProgramBuilder, value: Value, from: Shape, to: Shape): Value {
  if (sizeOf(from) === sizeOf(to)) return value;
  const result = builder.allocate(sizeOf(to));
  builder.add(...copy(builder, to, value, 0, broadcastStrides(from, to), result, 0, stridesOf(to)));
  return result;
}

export function lowerTranspose(builder: ProgramBuilder, node: Tensor): void {
  const [x] = node.inputs;
  const permutation = node.attributes.permutation as readonly number[];
  const strides = stridesOf(x.shape);
  const source = permutation.map(axis => strides[axis]);
  const value = builder.valueOf(x);
  builder.add(...copy(builder, node.shape, value, 0, source, builder.place(node), 0, stridesOf(node.shape)));
}

export function lowerSlice(builder: ProgramBuilder, node: Tensor): void {
  const [x] = node.inputs;
  const { axis, start } = node.attributes as { axis: number; start: number };
  const strides = stridesOf(x.shape);
  const value = builder.valueOf(x);
  const from = start * strides[axis];
  builder.add(
    ...copy(builder, node.shape, value, from, strides, builder.place(node), 0, stridesOf(node.shape)),
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
    ...copy(builder, x.shape, value, 0, stridesOf(x.shape), result, before * strides[axis], strides),
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
      ...copy(builder, part.shape, value, 0, stridesOf(part.shape), result, start * strides[axis], strides),
    );
    start += part.shape[axis];
  }
}

/** Copies a box of this shape; strides outermost first. */
function copy(
  room: Room,
  shape: Shape,
  source: Value,
  sourceStart: number,
  sourceStrides: readonly number[],
  result: Value,
  resultStart: number,
  resultStrides: readonly number[],
): Step[] {
  const { extents, strides } = collapse(shape, [sourceStrides, resultStrides]);
  if (extents.length > MAX_COPY_AXES) {
    throw new RuntimeError(
      `the WebGPU runtime moves elements along at most ${MAX_COPY_AXES} axes; [${shape.join(',')}] needs ${extents.length}`,
    );
  }
  return copyBox(
    extents,
    { value: source, start: sourceStart, strides: strides[0] },
    { value: result, start: resultStart, strides: strides[1] },
    room,
  );
}
