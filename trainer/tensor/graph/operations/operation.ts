import type { TensorBuilder } from '../builder.ts';
import type { Primitive } from '../program.ts';
import {
  type Attributes,
  broadcastShapes,
  type DType,
  describe,
  GraphError,
  type Tensor,
  type TensorType,
} from '../tensor.ts';

/** View that a gradient rule has of the node it differentiates. */
export interface GradientContext<A extends Attributes> {
  readonly g: TensorBuilder;
  readonly inputs: readonly Tensor[];
  readonly output: Tensor;
  readonly attributes: A;
  /** ∂loss/∂output, of the output's shape. */
  readonly upstream: Tensor;
  /** True if the gradient of input i is needed; others may be left undefined. */
  needs(index: number): boolean;
}

/** A function of numbers; flags are 0 or 1. */
export type ScalarFunction = (...x: number[]) => number;

/**
 * Arithmetic of an elementwise operation, broadcast by numpy's rule. Runtimes build their kernels from it, so an
 * elementwise operation needs no lowering.
 */
export interface Elementwise {
  /** ONNX operator with the same result; absent where the ONNX runtime has a lowering for the operation. */
  readonly onnx?: string;
  /** A plain typed function that gpu.js compiles for a GPU, precise in float32; it has the operation's name. */
  readonly scalar: ScalarFunction;
}

/** One primitive: how its type follows from its inputs, and how it differentiates. */
export interface Operation<A extends Attributes = Attributes> extends Primitive<A> {
  readonly name: string;
  readonly elementwise?: Elementwise;
  /** Gradient per input; absent where the operation has none (comparisons, integers). */
  gradient?(context: GradientContext<A>): readonly (Tensor | undefined)[];
}

/** @throws GraphError unless the tensor is float32 */
export function expectFloat(where: string, ...tensors: readonly TensorType[]): void {
  for (const tensor of tensors) {
    if (tensor.dtype !== 'float32') throw new GraphError(`${where} needs float32, got ${describe(tensor)}`);
  }
}

/** @throws GraphError unless the tensor is int32 */
export function expectIds(where: string, tensor: TensorType): void {
  if (tensor.dtype !== 'int32') throw new GraphError(`${where} needs int32 ids, got ${describe(tensor)}`);
}

/** An operation on one float tensor, element by element, with the name of its scalar function. */
export function unary({
  gradient,
  fold,
  ...elementwise
}: Elementwise &
  Pick<Operation, 'fold'> & {
    readonly gradient: (context: GradientContext<Attributes>) => Tensor;
  }): Operation {
  const { name } = elementwise.scalar;
  return {
    name,
    elementwise,
    fold,
    infer([x]) {
      expectFloat(name, x);
      return { dtype: x.dtype, shape: x.shape };
    },
    gradient: context => [gradient(context)],
  };
}

interface BinaryOptions extends Elementwise {
  /** Element types allowed for the inputs, which must be equal; numbers when absent. */
  readonly accepts?: readonly DType[];
  /** Element type of the result; that of the inputs when absent. */
  readonly result?: DType;
  readonly gradient?: Operation['gradient'];
}

/** An operation on two tensors of one element type, broadcast by numpy's rule, with the name of its scalar function. */
export function binary({
  accepts = ['float32', 'int32'],
  result,
  gradient,
  ...elementwise
}: BinaryOptions): Operation {
  const { name } = elementwise.scalar;
  return {
    name,
    elementwise,
    infer([a, b]) {
      if (a.dtype !== b.dtype || !accepts.includes(a.dtype)) {
        throw new GraphError(
          `${name} needs two tensors of one type (${accepts.join(' or ')}), got ${describe(a)} and ${describe(b)}`,
        );
      }
      return { dtype: result ?? a.dtype, shape: broadcastShapes(a.shape, b.shape, name) };
    },
    gradient,
  };
}
