import type { NdArray, Shape } from '../../../graph/tensor.ts';
import type { Value } from '../lowering/step.ts';

/** An array on the device as a tensor. */
export interface TensorValue {
  readonly value: Value;
  readonly shape: Shape;
}

/** A float tensor as the graph's operations take it when they run on the processor. */
export function toNdArray(data: Float32Array, { shape }: TensorValue): NdArray {
  return { dtype: 'float32', shape, data: Float64Array.from(data) };
}
