import { broadcastShapes, describe, GraphError } from '../tensor.ts';
import { binary, type Operation, type ScalarFunction, unary } from './operation.ts';

/** Elementwise operations: functions of one number, arithmetic first, then activations; then operators of two. */

export const neg = unary({
  onnx: 'Neg',
  scalar: function neg(x: number): number {
    return -x;
  },
  gradient: ({ g, upstream }) => g.neg(upstream),
  fold: ([x]) => x.map(value => -value),
});

export const exp = unary({
  onnx: 'Exp',
  scalar: function exp(x: number): number {
    return Math.exp(x);
  },
  gradient: ({ g, output, upstream }) => g.mul(upstream, output),
});

/** Natural logarithm. */
export const log = unary({
  onnx: 'Log',
  scalar: function log(x: number): number {
    return Math.log(x);
  },
  gradient: ({ g, inputs, upstream }) => g.div(upstream, inputs[0]),
});

export const sqrt = unary({
  onnx: 'Sqrt',
  scalar: function sqrt(x: number): number {
    return Math.sqrt(x);
  },
  gradient: ({ g, output, upstream }) => g.div(g.mul(upstream, 0.5), output),
});

/** 1 / x. */
export const reciprocal = unary({
  onnx: 'Reciprocal',
  scalar: function reciprocal(x: number): number {
    return 1 / x;
  },
  gradient: ({ g, output, upstream }) => g.neg(g.mul(upstream, g.mul(output, output))),
});

/** |x|; its gradient at 0 is 0. */
export const abs = unary({
  onnx: 'Abs',
  scalar: function abs(x: number): number {
    return Math.abs(x);
  },
  gradient: ({ g, inputs, upstream }) => g.mul(upstream, g.sign(inputs[0])),
});

/** −1, 0 or 1; its gradient is 0. */
export const sign = unary({
  onnx: 'Sign',
  scalar: function sign(x: number): number {
    return x > 0 ? 1 : x < 0 ? -1 : 0;
  },
  gradient: ({ g, inputs }) => g.zeros(inputs[0].shape),
});

export const cos = unary({
  onnx: 'Cos',
  scalar: function cos(x: number): number {
    return Math.cos(x);
  },
  gradient: ({ g, inputs, upstream }) => g.neg(g.mul(upstream, g.sin(inputs[0]))),
});

export const sin = unary({
  onnx: 'Sin',
  scalar: function sin(x: number): number {
    return Math.sin(x);
  },
  gradient: ({ g, inputs, upstream }) => g.mul(upstream, g.cos(inputs[0])),
});

export const sigmoid = unary({
  onnx: 'Sigmoid',
  // From exp of a negative number, which never overflows.
  scalar: function sigmoid(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  },
  gradient: ({ g, output, upstream }) => g.mul(upstream, g.mul(output, g.sub(1, output))),
});

/** x · sigmoid(x), the activation of the Qwen and Llama families. */
export const silu = unary({
  // From exp of a negative number, which never overflows.
  scalar: function silu(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? (x * e) / (1 + e) : x / (1 + e);
  },
  gradient: ({ g, inputs: [x], output, upstream }) => {
    const gate = g.sigmoid(x);
    return g.mul(upstream, g.add(gate, g.mul(output, g.sub(1, gate))));
  },
});

export const tanh = unary({
  onnx: 'Tanh',
  // From exp of a negative number, which never overflows.
  scalar: function tanh(x: number): number {
    const e = Math.exp(-2 * Math.abs(x));
    const t = (1 - e) / (1 + e);
    return x < 0 ? -t : t;
  },
  gradient: ({ g, output, upstream }) => g.mul(upstream, g.sub(1, g.mul(output, output))),
});

/** The error function, 2/√π ∫₀ˣ exp(−t²) dt, used by the exact GELU. */
export const erf = unary({
  onnx: 'Erf',
  // Abramowitz and Stegun 7.1.26, error 1.5e-7.
  scalar: function erf(x: number): number {
    const z = Math.abs(x);
    const t = 1 / (1 + 0.3275911 * z);
    const p =
      t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    const y = 1 - p * Math.exp(-z * z);
    return x < 0 ? -y : y;
  },
  gradient: ({ g, inputs: [x], upstream }) =>
    g.mul(upstream, g.mul(g.exp(g.neg(g.mul(x, x))), 2 / Math.sqrt(Math.PI))),
});

/** max(x, 0); its gradient at 0 is 0. */
export const relu = unary({
  onnx: 'Relu',
  scalar: function relu(x: number): number {
    return Math.max(x, 0);
  },
  gradient: ({ g, inputs, upstream }) => g.where(g.greater(inputs[0], 0), upstream, 0),
});

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
