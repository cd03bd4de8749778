import type { TensorBuilder } from '../builder.ts';
import {
  type Attributes,
  describe,
  GraphError,
  type NdArray,
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
  /** A plain typed function that gpu.js compiles for a GPU, precise in float32. */
  readonly scalar: ScalarFunction;
}

/** One primitive: how its type follows from its inputs, how it differentiates, and what it computes. */
export interface Operation<A extends Attributes = Attributes> {
  readonly name: string;
  readonly elementwise?: Elementwise;
  /** @throws GraphError when the inputs do not fit */
  infer(inputs: readonly TensorType[], attributes: A): TensorType;
  /** Gradient per input; absent where the operation has none (comparisons, integers). */
  gradient?(context: GradientContext<A>): readonly (Tensor | undefined)[];
  /** Result in float64, the reference for every runtime. */
  evaluate(inputs: readonly NdArray[], attributes: A, type: TensorType): Float64Array;
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
