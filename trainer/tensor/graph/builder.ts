import { columnScale, covers, isConstant, type PrimitiveTable, Program, resolveShape } from './program.ts';
import {
  type DType,
  GraphError,
  normalizeAxis,
  type Shape,
  sameShape,
  sizeOf,
  type Tensor,
} from './tensor.ts';

/** A tensor, or a number as a scalar of the other operand's type. */
export type Operand = Tensor | number;

export interface BuilderOptions {
  /**
   * Builds each row's arithmetic the same for any number of rows, at some cost: equal rows then give equal bits in
   * programs of different sizes.
   */
  readonly rowsAlike?: boolean;
}

export interface MatmulOptions {
  /** Swaps the last two axes of the left side before multiplying. */
  readonly transposeA?: boolean;
  readonly transposeB?: boolean;
  /** Factor on the product. */
  readonly scale?: number;
}

export interface AttentionOptions {
  /** Query t sees keys 0 … t; off when absent. */
  readonly causal?: boolean;
  /** 1/√size when absent. */
  readonly scale?: number;
  /** Added to the scores, [batch or 1, 1, queries, keys]; gets no gradient. */
  readonly bias?: Tensor;
}

/**
 * `blockSize` positions of a sequence are adjacent in the cache. A row sees the last `window` positions up to its own,
 * or all if `window` is 0. Scores s become softcap · tanh(s / softcap), unless `softcap` is 0.
 */
export type PagedAttentionAttributes = Readonly<{
  blockSize: number;
  scale: number;
  window: number;
  softcap: number;
}>;

/**
 * Arithmetic, shapes, products and sums by numpy's names and with its broadcasting, and the operations of neural networks.
 * Each method adds a node and returns it; steps that change nothing (a reshape to the same shape, ×1, +0) give their
 * input back. Gradient rules see a builder as this class, which does not know the operations; GraphBuilder adds them.
 */
export class TensorBuilder extends Program {
  readonly #scalesMove: boolean;

  constructor(operations: PrimitiveTable, { rowsAlike = false }: BuilderOptions = {}) {
    super(operations);
    this.#scalesMove = !rowsAlike;
  }

  zeros(shape: Shape): Tensor {
    return this.broadcastTo(this.constant(0), shape);
  }

  add(a: Operand, b: Operand): Tensor {
    const [x, y] = this.#pair(a, b);
    if (isConstant(y, 0) && covers(x, y)) return x;
    if (isConstant(x, 0) && covers(y, x)) return y;
    return this.apply('add', [x, y]);
  }

  sub(a: Operand, b: Operand): Tensor {
    const [x, y] = this.#pair(a, b);
    return isConstant(y, 0) && covers(x, y) ? x : this.apply('sub', [x, y]);
  }

  mul(a: Operand, b: Operand): Tensor {
    const [x, y] = this.#pair(a, b);
    if (isConstant(y, 1) && covers(x, y)) return x;
    if (isConstant(x, 1) && covers(y, x)) return y;
    return this.apply('mul', [x, y]);
  }

  div(a: Operand, b: Operand): Tensor {
    const [x, y] = this.#pair(a, b);
    return isConstant(y, 1) && covers(x, y) ? x : this.apply('div', [x, y]);
  }

  readonly maximum = this.#binary('maximum');
  readonly minimum = this.#binary('minimum');

  clip(x: Tensor, low: number, high: number): Tensor {
    return this.minimum(this.maximum(x, low), high);
  }

  readonly less = this.#binary('less');
  readonly greater = this.#binary('greater');
  readonly equal = this.#binary('equal');

  and(a: Tensor, b: Tensor): Tensor {
    return this.apply('logicalAnd', [a, b]);
  }

  or(a: Tensor, b: Tensor): Tensor {
    return this.apply('logicalOr', [a, b]);
  }

  not(a: Tensor): Tensor {
    return a.operation === 'logicalNot' ? a.inputs[0] : this.apply('logicalNot', [a]);
  }

  /** Selects; the branch not taken never leaks, NaN included. */
  where(condition: Tensor, a: Operand, b: Operand): Tensor {
    return this.apply('where', [condition, ...this.#pair(a, b)]);
  }

  cast(x: Tensor, to: DType): Tensor {
    return x.dtype === to ? x : this.apply('cast', [x], { to });
  }

  readonly stopGradient = this.#unary('stopGradient');

  neg(x: Tensor): Tensor {
    return x.operation === 'neg' ? x.inputs[0] : this.apply('neg', [x]);
  }

  readonly exp = this.#unary('exp');
  readonly log = this.#unary('log');
  readonly sqrt = this.#unary('sqrt');
  readonly reciprocal = this.#unary('reciprocal');

  rsqrt(x: Tensor): Tensor {
    return this.reciprocal(this.sqrt(x));
  }

  readonly abs = this.#unary('abs');
  readonly sign = this.#unary('sign');
  readonly sigmoid = this.#unary('sigmoid');
  readonly silu = this.#unary('silu');
  readonly tanh = this.#unary('tanh');
  readonly erf = this.#unary('erf');
  readonly cos = this.#unary('cos');
  readonly sin = this.#unary('sin');
  readonly relu = this.#unary('relu');

  /** [..., m, k] × [..., k, n]; leading axes broadcast, a rank-2 right side serves every row of the left. */
  matmul(a: Tensor, b: Tensor, options: MatmulOptions = {}): Tensor {
    const { transposeA = false, transposeB = false, scale = 1 } = options;
    const scaled = transposeA || !this.#scalesMove ? undefined : columnScale(a, b, transposeB);
    if (scaled !== undefined) {
      const [x, columns] = scaled;
      const factor = transposeB ? columns : this.reshape(columns, [-1, 1]);
      return this.apply('matmul', [x, this.mul(b, factor)], { transposeA, transposeB, scale });
    }
    return this.apply('matmul', [a, b], { transposeA, transposeB, scale });
  }

  /** At most one extent may be −1: it takes the remaining elements. */
  reshape(x: Tensor, shape: Shape): Tensor {
    const resolved = resolveShape(x.shape, shape);
    if (sameShape(x.shape, resolved)) return x;
    if (x.operation === 'reshape') return this.reshape(x.inputs[0], resolved);
    return this.apply('reshape', [x], { shape: resolved });
  }

  /** Output axis i is input axis `permutation[i]`. */
  transpose(x: Tensor, permutation: readonly number[]): Tensor {
    if (permutation.every((axis, i) => axis === i) && permutation.length === x.shape.length) return x;
    if (x.operation === 'transpose') {
      const inner = x.attributes.permutation as readonly number[];
      return this.transpose(
        x.inputs[0],
        permutation.map(axis => inner[axis]),
      );
    }
    return this.apply('transpose', [x], { permutation: [...permutation] });
  }

  broadcastTo(x: Tensor, shape: Shape): Tensor {
    return sameShape(x.shape, shape) ? x : this.apply('broadcastTo', [x], { shape: [...shape] });
  }

  /** Entries start (included) to end (excluded) of an axis. */
  slice(x: Tensor, axis: number, start: number, end: number): Tensor {
    const along = normalizeAxis(axis, x.shape.length, 'slice');
    if (start === 0 && end === x.shape[along]) return x;
    return this.apply('slice', [x], { axis: along, start, end });
  }

  /** Zeros before and after along an axis. */
  pad(x: Tensor, axis: number, before: number, after: number): Tensor {
    if (before === 0 && after === 0) return x;
    return this.apply('pad', [x], { axis: normalizeAxis(axis, x.shape.length, 'pad'), before, after });
  }

  concat(list: readonly Tensor[], axis: number): Tensor {
    if (list.length === 0) throw new GraphError('concat needs at least one tensor');
    if (list.length === 1) return list[0];
    return this.apply('concat', list, { axis: normalizeAxis(axis, list[0].shape.length, 'concat') });
  }

  /** Over all axes when none are given. */
  sum(x: Tensor, axes?: readonly number[], keepDims = false): Tensor {
    return this.#reduce('sum', x, axes, keepDims);
  }

  max(x: Tensor, axes?: readonly number[], keepDims = false): Tensor {
    return this.#reduce('max', x, axes, keepDims);
  }

  mean(x: Tensor, axes?: readonly number[], keepDims = false): Tensor {
    const total = this.sum(x, axes, keepDims);
    return this.mul(total, sizeOf(total.shape) / sizeOf(x.shape));
  }

  /** Adds up what broadcasting repeated: the transpose of broadcasting `shape` to the tensor's shape. */
  sumTo(x: Tensor, shape: Shape): Tensor {
    if (sameShape(x.shape, shape)) return x;
    const lead = x.shape.length - shape.length;
    const axes = x.shape
      .map((_, axis) => axis)
      .filter(axis => axis < lead || (shape[axis - lead] === 1 && x.shape[axis] !== 1));
    return this.reshape(this.sum(x, axes, false), shape);
  }

  /** Over the last axis. */
  readonly softmax = this.#unary('softmax');

  /** Over the last axis. */
  readonly logSoftmax = this.#unary('logSoftmax');

  /** Rows of axis 0: table [n, ...rest], ids [...] → [...ids, ...rest]. */
  gather(table: Tensor, ids: Tensor): Tensor {
    return this.apply('gather', [table, ids]);
  }

  /**
   * Permutes rows x [n, ...rest]: ids [m] → [m, ...rest]. `inverse` [n] gives each row's index among the ids, for the
   * gradient; no other id may have a gradient of that row.
   */
  rearrange(x: Tensor, ids: Tensor, inverse: Tensor): Tensor {
    return this.apply('gather', [x, ids, inverse]);
  }

  /** updates [...ids, ...rest], ids [...] → [rows, ...rest]; updates with the same id are added up. */
  scatterAddRows(updates: Tensor, ids: Tensor, rows: number): Tensor {
    return this.apply('scatterAddRows', [updates, ids], { rows });
  }

  /** x [..., v], ids [...] → [...], the entry of the last axis that the id names. */
  takeLast(x: Tensor, ids: Tensor): Tensor {
    return this.apply('takeLast', [x, ids]);
  }

  /** values [...], ids [...] → [..., width], zero except at the ids. */
  putLast(values: Tensor, ids: Tensor, width: number): Tensor {
    return this.apply('putLast', [values, ids], { width });
  }

  /** x / √(mean(x²) + ε) · weight over the last axis. */
  rmsNorm(x: Tensor, weight: Tensor, epsilon: number): Tensor {
    return this.mul(this.rmsNormalize(x, epsilon), weight);
  }

  /** x / √(mean(x²) + ε) over the last axis. */
  rmsNormalize(x: Tensor, epsilon: number): Tensor {
    return this.apply('rmsNormalize', [x], { epsilon });
  }

  /** 1 / √(mean(x²) + ε) over the last axis, kept as 1. */
  inverseRms(x: Tensor, epsilon: number): Tensor {
    return this.apply('inverseRms', [x], { epsilon });
  }

  /** Half-split rotary embedding: x [batch, time, heads, size], cos and sin [batch, time, size/2]. */
  rope(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
    return this.apply('rope', [x, cos, sin]);
  }

  /**
   * softmax(scale · q kᵀ + bias) v: q [batch, queries, heads, size], k and v [batch, keys, keyHeads, size] with
   * keyHeads dividing heads; the result has the shape of q.
   */
  attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): Tensor {
    const { causal = false, scale = 1 / Math.sqrt(q.shape[q.shape.length - 1]), bias } = options;
    return this.apply('attention', bias === undefined ? [q, k, v] : [q, k, v, bias], { causal, scale });
  }
  /** The table with the rows at `places` replaced by `rows`; for runtimes with separate memory, as the two below. */
  putRows(table: Tensor, rows: Tensor, places: Tensor): Tensor {
    return this.apply('putRows', [table, rows, places]);
  }

  /** Attention of rows over keys and values in blocks; `inputs` in the order of the operation's. */
  pagedAttention(inputs: readonly Tensor[], attributes: PagedAttentionAttributes): Tensor {
    return this.apply('pagedAttention', inputs, attributes);
  }

  /** Samples a token for each row of logits: token, weight and sum of weights. */
  sample(logits: Tensor, settings: Tensor): Tensor {
    return this.apply('sample', [logits, settings]);
  }

  #unary(name: string) {
    return (x: Tensor): Tensor => this.apply(name, [x]);
  }

  #binary(name: string) {
    return (a: Operand, b: Operand): Tensor => this.apply(name, this.#pair(a, b));
  }

  #reduce(name: string, x: Tensor, axes: readonly number[] | undefined, keepDims: boolean): Tensor {
    const rank = x.shape.length;
    const along = axes?.map(axis => normalizeAxis(axis, rank, name)) ?? x.shape.map((_, axis) => axis);
    const sorted = [...new Set(along)].sort((a, b) => a - b);
    return sorted.length === 0 ? x : this.apply(name, [x], { axes: sorted, keepDims });
  }

  /**
   * Operands of a broadcasting operation. An operand that was repeated only to fit the other is used as it was before.
   */
  #pair(a: Operand, b: Operand): [Tensor, Tensor] {
    const [x, y] = this.#tensors(a, b);
    if (x.operation === 'broadcastTo' && covers(y, x)) return [x.inputs[0], y];
    if (y.operation === 'broadcastTo' && covers(x, y)) return [x, y.inputs[0]];
    return [x, y];
  }

  #tensors(a: Operand, b: Operand): [Tensor, Tensor] {
    if (typeof a !== 'number') return [a, typeof b === 'number' ? this.constant(b, [], a.dtype) : b];
    if (typeof b !== 'number') return [this.constant(a, [], b.dtype), b];
    return [this.constant(a), this.constant(b)];
  }
}
