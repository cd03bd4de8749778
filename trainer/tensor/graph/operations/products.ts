import { broadcastShapes, describe, GraphError, type Shape, type Tensor } from '../tensor.ts';
import { expectFloat, type GradientContext, type Operation } from './operation.ts';

/** The matrix product; those with frozen weights are in `blocks.ts`. */

/** `scale` multiplies the product; the transposes swap the last two axes before multiplying. */
export type MatmulAttributes = Readonly<{ transposeA: boolean; transposeB: boolean; scale: number }>;

/**
 * Matrix product over the last two axes, [..., m, k] × [..., k, n] → [..., m, n]; leading axes broadcast.
 * A rank-2 right side is applied to every row of the left one.
 */
export const matmul: Operation<MatmulAttributes> = {
  name: 'matmul',
  infer([a, b], attributes) {
    expectFloat('matmul', a, b);
    if (a.shape.length < 2 || b.shape.length < 2) {
      throw new GraphError(`matmul needs tensors of rank 2 or more, got ${describe(a)} and ${describe(b)}`);
    }
    const left = matrixOf(a.shape, attributes.transposeA);
    const right = matrixOf(b.shape, attributes.transposeB);
    if (left.columns !== right.rows) {
      throw new GraphError(
        `matmul: inner extents ${left.columns} and ${right.rows} differ (${describe(a)}${attributes.transposeA ? 'ᵀ' : ''} × ${describe(b)}${attributes.transposeB ? 'ᵀ' : ''})`,
      );
    }
    const batch = broadcastShapes(a.shape.slice(0, -2), b.shape.slice(0, -2), 'matmul');
    return { dtype: 'float32', shape: [...batch, left.rows, right.columns] };
  },
  gradient(context) {
    return [
      context.needs(0) ? leftGradient(context) : undefined,
      context.needs(1) ? rightGradient(context) : undefined,
    ];
  },
};

export function matrixOf(shape: Shape, transposed: boolean): { rows: number; columns: number } {
  const [rows, columns] = shape.slice(-2);
  return transposed ? { rows: columns, columns: rows } : { rows, columns };
}

function leftGradient({
  g,
  inputs: [a, b],
  attributes,
  upstream,
}: GradientContext<MatmulAttributes>): Tensor {
  const { transposeA, transposeB, scale } = attributes;
  const gradient = transposeA
    ? g.matmul(b, upstream, { transposeA: transposeB, transposeB: true, scale })
    : g.matmul(upstream, b, { transposeB: !transposeB, scale });
  return g.sumTo(gradient, a.shape);
}

function rightGradient({ g, inputs, attributes, upstream }: GradientContext<MatmulAttributes>): Tensor {
  const { transposeA, transposeB, scale } = attributes;
  const b = inputs[1];
  let a = inputs[0];
  let dy = upstream;
  if (b.shape.length === 2 && a.shape.length > 2 && !transposeA) {
    a = g.reshape(a, [-1, a.shape[a.shape.length - 1]]);
    dy = g.reshape(dy, [-1, dy.shape[dy.shape.length - 1]]);
  }
  const gradient = transposeB
    ? g.matmul(dy, a, { transposeA: true, transposeB: transposeA, scale })
    : g.matmul(a, dy, { transposeA: !transposeA, scale });
  return g.sumTo(gradient, b.shape);
}
