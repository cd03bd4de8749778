import { broadcastShapes, describe, GraphError } from '../tensor.ts';
import { binary, type Operation, type ScalarFunction } from './operation.ts';

/** Elementwise operators of two operands: arithmetic, comparison and logic; also negation and selection by flags. */

export const add = binary({
  onnx: 'Add',
  scalar: function add(a: number, b: number): number {
    return a + b;
  },
  gradient: ({ g, inputs: [a, b], upstream }) => [g.sumTo(upstream, a.shape), g.sumTo(upstream, b.shape)],
});

export const sub = binary({
  onnx: 'Sub',
  scalar: function sub(a: number, b: number): number {
    return a - b;
  },
  gradient: ({ g, inputs: [a, b], upstream }) => [
    g.sumTo(upstream, a.shape),
    g.sumTo(g.neg(upstream), b.shape),
  ],
});

export const mul = binary({
  onnx: 'Mul',
  scalar: function mul(a: number, b: number): number {
    return a * b;
  },
  gradient: ({ g, inputs: [a, b], upstream, needs }) => [
    needs(0) ? g.sumTo(g.mul(upstream, b), a.shape) : undefined,
    needs(1) ? g.sumTo(g.mul(upstream, a), b.shape) : undefined,
  ],
});

export const div = binary({
  onnx: 'Div',
  scalar: function div(a: number, b: number): number {
    return a / b;
  },
  accepts: ['float32'],
  gradient: ({ g, inputs: [a, b], output, upstream, needs }) => {
    const scaled = g.div(upstream, b);
    return [
      needs(0) ? g.sumTo(scaled, a.shape) : undefined,
      needs(1) ? g.sumTo(g.neg(g.mul(scaled, output)), b.shape) : undefined,
    ];
  },
});

/**
 * The larger or the smaller of two numbers. Half of the gradient goes to each operand where both are equal, as in PyTorch.
 * @param wins the comparison that holds where the first one is taken
 */
const extremum = (onnx: string, wins: 'greater' | 'less', scalar: ScalarFunction): Operation =>
  binary({
    onnx,
    scalar,
    gradient: ({ g, inputs: [a, b], upstream, needs }) => {
      const half = g.mul(upstream, 0.5);
      const share = (own: typeof a, other: typeof a) =>
        g.sumTo(g.where(g[wins](own, other), upstream, g.where(g.equal(own, other), half, 0)), own.shape);
      return [needs(0) ? share(a, b) : undefined, needs(1) ? share(b, a) : undefined];
    },
  });

export const maximum = extremum('Max', 'greater', function maximum(a: number, b: number): number {
  return Math.max(a, b);
});

export const minimum = extremum('Min', 'less', function minimum(a: number, b: number): number {
  return Math.min(a, b);
});

const comparison = (onnx: string, scalar: ScalarFunction): Operation =>
  binary({ onnx, scalar, result: 'bool' });

export const less = comparison('Less', function less(a: number, b: number): number {
  return a < b ? 1 : 0;
});

export const greater = comparison('Greater', function greater(a: number, b: number): number {
  return a > b ? 1 : 0;
});

export const equal = comparison('Equal', function equal(a: number, b: number): number {
  return a === b ? 1 : 0;
});

const connective = (onnx: string, scalar: ScalarFunction): Operation =>
  binary({ onnx, scalar, accepts: ['bool'], result: 'bool' });

export const logicalAnd = connective('And', function logicalAnd(a: number, b: number): number {
  return a * b;
});

export const logicalOr = connective('Or', function logicalOr(a: number, b: number): number {
  return Math.max(a, b);
});

export const logicalNot: Operation = {
  name: 'logicalNot',
  elementwise: {
    onnx: 'Not',
    scalar: function logicalNot(x: number): number {
      return 1 - x;
    },
  },
  infer([x]) {
    if (x.dtype !== 'bool') throw new GraphError(`logicalNot needs bool, got ${describe(x)}`);
    return { dtype: 'bool', shape: x.shape };
  },
};

/** `a` where the condition holds, `b` elsewhere; the value not taken is never read into the result, NaN included. */
export const where: Operation = {
  name: 'where',
  elementwise: {
    onnx: 'Where',
    scalar: function where(condition: number, a: number, b: number): number {
      return condition !== 0 ? a : b;
    },
  },
  infer([condition, a, b]) {
    if (condition.dtype !== 'bool')
      throw new GraphError(`where needs a bool condition, got ${describe(condition)}`);
    if (a.dtype !== b.dtype) {
      throw new GraphError(`where needs two values of one type, got ${describe(a)} and ${describe(b)}`);
    }
    return {
      dtype: a.dtype,
      shape: broadcastShapes(condition.shape, broadcastShapes(a.shape, b.shape, 'where'), 'where'),
    };
  },
  gradient: ({ g, inputs: [condition, a, b], upstream, needs }) => [
    undefined,
    needs(1) ? g.sumTo(g.where(condition, upstream, 0), a.shape) : undefined,
    needs(2) ? g.sumTo(g.where(condition, 0, upstream), b.shape) : undefined,
  ],
};
