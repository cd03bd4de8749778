import type { NdArray, Shape } from '../../../graph/tensor.ts';
import type { DeviceValue } from '../lowering/step.ts';

/** An array on the device as a tensor. */
export interface TensorValue {
  readonly value: DeviceValue;
  readonly shape: Shape;
}

/** A float tensor as the graph's operations take it when they run on the processor. */
export function toNdArray(data: Float32Array, { shape }: TensorValue): NdArray {
  return { dtype: 'float32', shape, data: Float64Array.from(data) };
}
