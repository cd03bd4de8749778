import type { Shape } from '../../../graph/tensor.ts';
import type { DeviceValue } from '../lowering/arrays.ts';

/** Lines of a shader's text, one for each number below `count`. */
export function over(count: number, line: (i: number) => string): string {
  return list(count, line, '\n');
}

/** Parts of a line of a shader's text, one for each number below `count`. */
export function list(count: number, item: (i: number) => string, separator = ', '): string {
  return Array.from({ length: count }, (_, i) => item(i)).join(separator);
}

/** An array on the device as a tensor. */
export interface TensorValue {
  readonly value: DeviceValue;
  readonly shape: Shape;
}

/** Bindings of every product; a side consists of vectors of four, or of numbers. */
export const productBindings = (leftVectors: boolean, rightVectors: boolean): string => `
struct Uniforms {
  rows : u32,
  columns : u32,
  inner : u32,
  innerBatch : u32,
  leftOuter : u32,
  leftInner : u32,
  rightOuter : u32,
  rightInner : u32,
  leftStride : u32,
  leftInnerStride : u32,
  leftInnerFast : u32,
  rightStride : u32,
  rightInnerStride : u32,
  rightInnerFast : u32,
  // inner entries of a strip
  strip : u32,
  scale : f32,
  // elements before the first of each side, and of the result
  leftStart : u32,
  rightStart : u32,
  resultStart : u32,
  // from a row of the result to the next, and from a matrix to the next
  resultStride : u32,
  resultBatch : u32,
  // 1 adds to what the result holds
  adding : u32,
}
@group(0) @binding(0) var<uniform> u : Uniforms;
@group(0) @binding(1) var<storage, read> left : array<${leftVectors ? 'vec4<f32>' : 'f32'}>;
@group(0) @binding(2) var<storage, read> right : array<${rightVectors ? 'vec4<f32>' : 'f32'}>;
@group(0) @binding(3) var<storage, read_write> result : array<f32>;

fn put(matrix : u32, row : u32, column : u32, value : f32) {
  let at = u.resultStart + matrix * u.resultBatch + row * u.resultStride + column;
  if (u.adding == 1u) { result[at] += value; } else { result[at] = value; }
}
`;

/** In `main`: where a workgroup's tile of this many rows and columns lies, in which factors and from which row and column on. */
export const tilePlace = (extent: number): string => `let outer = group.z / u.innerBatch;
  let inside = group.z % u.innerBatch;
  let left_start = u.leftStart + outer * u.leftOuter + inside * u.leftInner;
  let right_start = u.rightStart + outer * u.rightOuter + inside * u.rightInner;
  let first_row = group.y * ${extent}u;
  let first_column = group.x * ${extent}u;`;
