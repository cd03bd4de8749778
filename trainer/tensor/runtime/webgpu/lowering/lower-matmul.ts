import type { MatmulAttributes } from '../../../graph/operations/products.ts';
import { type Shape, sizeOf, stridesOf, type Tensor } from '../../../graph/tensor.ts';
import { type ProductSizes, product } from '../shaders/matmul.ts';
import { broadcastStrides, collapse } from './layout.ts';
import { repeat } from './lower-movement.ts';
import type { ProgramBuilder } from './program.ts';

type Matrix = { readonly rows: number; readonly columns: number };

/** A product; rows of a batch that share one right side are taken as the rows of one matrix. */
export function lowerMatmul(builder: ProgramBuilder, node: Tensor): void {
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

function matrixOf(shape: Shape, transposed: boolean): Matrix {
  const [rows, columns] = shape.slice(-2);
  return transposed ? { rows: columns, columns: rows } : { rows, columns };
}

/** Strides in elements along the axes before the last two, 0 where the tensor repeats. */
function matrixStrides(shape: Shape, batch: Shape): number[] {
  const size = sizeOf(shape.slice(-2));
  return broadcastStrides(shape.slice(0, -2), batch).map(stride => stride * size);
}
