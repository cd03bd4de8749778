import {
  type Attributes,
  broadcastShapes,
  type DType,
  describe,
  GraphError,
  type NdArray,
  type Shape,
  sizeOf,
  stridesOf,
  type Tensor,
} from '../tensor.ts';
import {
  type Elementwise,
  expectFloat,
  type GradientContext,
  type Operation,
  type ScalarFunction,
} from './operation.ts';

/** Calls `visit(outputIndex, offsets…)` for each element of `shape`, with the broadcast offset into each input. */
export function forEachBroadcast(
  shape: Shape,
  inputs: readonly { readonly shape: Shape }[],
  visit: (index: number, offsets: readonly number[]) => void,
): void {
  const rank = shape.length;
  const steps = inputs.map(input => {
    const strides = stridesOf(input.shape);
    const padded = new Array<number>(rank).fill(0);
    for (let i = 0; i < input.shape.length; i++) {
      const axis = rank - input.shape.length + i;
      padded[axis] = input.shape[i] === 1 ? 0 : strides[i];
    }
    return padded;
  });
  const counter = new Array<number>(rank).fill(0);
  const offsets = new Array<number>(inputs.length).fill(0);
  const total = sizeOf(shape);
  for (let index = 0; index < total; index++) {
    visit(index, offsets);
    for (let axis = rank - 1; axis >= 0; axis--) {
      counter[axis]++;
      for (let k = 0; k < inputs.length; k++) offsets[k] += steps[k][axis];
      if (counter[axis] < shape[axis]) break;
      for (let k = 0; k < inputs.length; k++) offsets[k] -= steps[k][axis] * shape[axis];
      counter[axis] = 0;
    }
  }
}

interface ElementwiseOptions extends Elementwise {
  readonly name: string;
  /** The meaning in float64; `scalar` when absent. */
  readonly exact?: ScalarFunction;
}

/** An operation on one float tensor, element by element. */
export function unary({
  name,
  exact,
  gradient,
  ...elementwise
}: ElementwiseOptions & { readonly gradient: (context: GradientContext<Attributes>) => Tensor }): Operation {
  const { scalar } = elementwise;
  return {
    name,
    elementwise,
    infer([x]) {
      expectFloat(name, x);
      return { dtype: x.dtype, shape: x.shape };
    },
    gradient: context => [gradient(context)],
    evaluate: ([x]) => x.data.map(value => (exact ?? scalar)(value)),
  };
}

interface BinaryOptions extends ElementwiseOptions {
  /** Element types allowed for the inputs, which must be equal. */
  readonly accepts: readonly DType[];
  /** Element type of the result; that of the inputs when absent. */
  readonly result?: DType;
  readonly gradient?: Operation['gradient'];
}

/** An operation on two tensors of one element type, broadcast by numpy's rule. */
export function binary({ name, exact, accepts, result, gradient, ...elementwise }: BinaryOptions): Operation {
  const f = exact ?? elementwise.scalar;
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
    evaluate([a, b]: readonly NdArray[], _attributes, type) {
      const out = new Float64Array(sizeOf(type.shape));
      forEachBroadcast(type.shape, [a, b], (i, [ia, ib]) => {
        out[i] = f(a.data[ia], b.data[ib]);
      });
      return out;
    },
  };
}
