import { operations } from './operations/index.ts';
import type { PagedAttentionAttributes } from './operations/paged-attention.ts';
import {
  columnScale,
  covers,
  isConstant,
  isSmall,
  isSmallConstant,
  resolveShape,
  toNdArray,
} from './simplification.ts';
import {
  type Attributes,
  type AttributeValue,
  allocate,
  type DType,
  type Graph,
  GraphError,
  normalizeAxis,
  type Shape,
  sameShape,
  sizeOf,
  type Tensor,
} from './tensor.ts';

export type { DType, Graph, Shape, Tensor, TypedArray } from './tensor.ts';
export { GraphError } from './tensor.ts';

/** A tensor, or a number that stands for a scalar of the other operand's type. */
export type Operand = Tensor | number;

export interface MatmulOptions {
  /** Swap the last two axes of the left side first. */
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
 * Builds a tensor program: each method adds a node and returns it. Shapes are concrete; equal nodes are built
 * once, steps that change nothing (a reshape to the same shape, ×1, +0) give their input back, and small constants
 * are computed at once.
 *
 * @example
 * const g = new GraphBuilder();
 * const x = g.input('x', 'float32', [4, 3]);
 * const w = g.parameter('w', [3, 2]);
 * const loss = g.mean(g.mul(g.matmul(x, w), g.matmul(x, w)));
 * g.output('loss', loss);
 * g.output('w.grad', gradients(g, loss, [w])[0]);
 * const graph = g.build();
 */
export class GraphBuilder {
  readonly #scalesMove: boolean;
  readonly #nodes: Tensor[] = [];
  readonly #known = new Map<string, Tensor>();
  readonly #inputs = new Map<string, Tensor>();
  readonly #parameters = new Map<string, Tensor>();
  readonly #outputs = new Map<string, Tensor>();
  readonly #stages = new Map<Tensor, number>();
  #stage: number | undefined;
  #stageCount = 0;

  /**
   * @param options.rowsAlike builds every row's arithmetic the same however many rows there are, at some cost: equal rows
   *   then give equal bits in programs of different sizes
   */
  constructor({ rowsAlike = false }: { readonly rowsAlike?: boolean } = {}) {
    this.#scalesMove = !rowsAlike;
  }

  /** Every node so far, in the order built. */
  get nodes(): readonly Tensor[] {
    return this.#nodes;
  }

  /**
   * Steps that `build` adds belong together: gradients may compute them again instead of keeping them, which is worth it
   * where they hold much between little, as a layer does.
   */
  stage<T>(build: () => T): T {
    if (this.#stage !== undefined) throw new GraphError('a stage cannot begin inside another');
    this.#stage = this.#stageCount++;
    try {
      return build();
    } finally {
      this.#stage = undefined;
    }
  }

  /** Number of the stage that a step belongs to; undefined outside of stages. */
  stageOf(node: Tensor): number | undefined {
    return this.#stages.get(node);
  }

  /** A value given anew at every run. */
  input(name: string, dtype: DType, shape: Shape): Tensor {
    this.#claim(name);
    const tensor = this.#append('input', [], { name }, dtype, shape);
    this.#inputs.set(name, tensor);
    return tensor;
  }

  /** A float32 weight that the runtime keeps between runs; asking again for the name gives the same tensor. */
  parameter(name: string, shape: Shape): Tensor {
    const known = this.#parameters.get(name);
    if (known !== undefined) {
      if (sameShape(known.shape, shape)) return known;
      throw new GraphError(
        `parameter '${name}' has shape [${known.shape.join(',')}], asked for as [${shape.join(',')}]`,
      );
    }
    this.#claim(name);
    const tensor = this.#append('parameter', [], { name }, 'float32', shape);
    this.#parameters.set(name, tensor);
    return tensor;
  }

  /** Fixed data: a scalar, or elements in row-major order with a shape. */
  constant(value: number | ArrayLike<number>, shape?: Shape, dtype: DType = 'float32'): Tensor {
    const scalar = typeof value === 'number';
    const extents = shape ?? (scalar ? [] : [value.length]);
    const data = allocate(dtype, scalar ? sizeOf(extents) : value.length);
    if (scalar) data.fill(value);
    else data.set(value);
    if (data.length !== sizeOf(extents)) {
      throw new GraphError(`constant: ${data.length} elements do not fill shape [${extents.join(',')}]`);
    }
    if (data.length > 1) return this.#append('constant', [], { data }, dtype, extents);
    const key = `constant ${dtype} [${extents.join()}] ${Object.is(data[0], -0) ? '-0' : data[0]}`;
    const known = this.#known.get(key) ?? this.#append('constant', [], { data }, dtype, extents);
    this.#known.set(key, known);
    return known;
  }

  zeros(shape: Shape): Tensor {
    return this.broadcastTo(this.constant(0), shape);
  }

  /** Names a result; the same tensor may go out under several names. */
  output(name: string, tensor: Tensor): void {
    if (this.#outputs.has(name)) throw new GraphError(`output '${name}' is defined twice`);
    this.#own(tensor);
    this.#outputs.set(name, tensor);
  }

  /** The program as it stands: what the outputs need, and every declared input. */
  build(): Graph {
    if (this.#outputs.size === 0) throw new GraphError('a graph needs at least one output');
    const needed = new Set<Tensor>(this.#inputs.values());
    const pending = [...this.#outputs.values()];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      if (needed.has(node) && node.inputs.length === 0) continue;
      needed.add(node);
      for (const input of node.inputs) if (!needed.has(input)) pending.push(input);
    }
    const nodes = this.#nodes.filter(node => needed.has(node));
    const parameters = new Map([...this.#parameters].filter(([, tensor]) => needed.has(tensor)));
    return Object.freeze({
      nodes,
      inputs: new Map(this.#inputs),
      parameters,
      outputs: new Map(this.#outputs),
    });
  }

  /**
   * Adds a node of a primitive by name; the methods below are this with nicer arguments.
   * @throws GraphError when the operation is unknown or the inputs do not fit it
   */
  apply(name: string, inputs: readonly Tensor[], attributes: Attributes = {}): Tensor {
    const operation = operations.get(name);
    if (operation === undefined) {
      throw new GraphError(`unknown operation '${name}'; known: ${[...operations.keys()].join(', ')}`);
    }
    for (const input of inputs) this.#own(input);
    const key = `${name} ${inputs.map(input => input.id).join()} ${JSON.stringify(attributes)}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const type = operation.infer(inputs, attributes);
    const foldable = inputs.every(isSmallConstant) && isSmall(type.shape);
    const tensor = foldable
      ? this.constant(operation.evaluate(inputs.map(toNdArray), attributes, type), type.shape, type.dtype)
      : this.#append(name, inputs, attributes, type.dtype, type.shape);
    this.#known.set(key, tensor);
    return tensor;
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

  maximum(a: Operand, b: Operand): Tensor {
    return this.apply('maximum', this.#pair(a, b));
  }

  minimum(a: Operand, b: Operand): Tensor {
    return this.apply('minimum', this.#pair(a, b));
  }

  clip(x: Tensor, low: number, high: number): Tensor {
    return this.minimum(this.maximum(x, low), high);
  }

  less(a: Operand, b: Operand): Tensor {
    return this.apply('less', this.#pair(a, b));
  }

  greater(a: Operand, b: Operand): Tensor {
    return this.apply('greater', this.#pair(a, b));
  }

  equal(a: Operand, b: Operand): Tensor {
    return this.apply('equal', this.#pair(a, b));
  }

  lessEqual(a: Operand, b: Operand): Tensor {
    return this.not(this.greater(a, b));
  }

  greaterEqual(a: Operand, b: Operand): Tensor {
    return this.not(this.less(a, b));
  }

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

  stopGradient(x: Tensor): Tensor {
    return this.apply('stopGradient', [x]);
  }

  neg(x: Tensor): Tensor {
    return x.operation === 'neg' ? x.inputs[0] : this.apply('neg', [x]);
  }

  exp(x: Tensor): Tensor {
    return this.apply('exp', [x]);
  }

  log(x: Tensor): Tensor {
    return this.apply('log', [x]);
  }

  sqrt(x: Tensor): Tensor {
    return this.apply('sqrt', [x]);
  }

  reciprocal(x: Tensor): Tensor {
    return this.apply('reciprocal', [x]);
  }

  rsqrt(x: Tensor): Tensor {
    return this.reciprocal(this.sqrt(x));
  }

  abs(x: Tensor): Tensor {
    return this.apply('abs', [x]);
  }

  sign(x: Tensor): Tensor {
    return this.apply('sign', [x]);
  }

  sigmoid(x: Tensor): Tensor {
    return this.apply('sigmoid', [x]);
  }

  silu(x: Tensor): Tensor {
    return this.apply('silu', [x]);
  }

  tanh(x: Tensor): Tensor {
    return this.apply('tanh', [x]);
  }

  cos(x: Tensor): Tensor {
    return this.apply('cos', [x]);
  }

  sin(x: Tensor): Tensor {
    return this.apply('sin', [x]);
  }

  relu(x: Tensor): Tensor {
    return this.apply('relu', [x]);
  }

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

  /** One extent may be −1: whatever is left. */
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
  softmax(x: Tensor): Tensor {
    return this.apply('softmax', [x]);
  }

  /** Over the last axis. */
  logSoftmax(x: Tensor): Tensor {
    return this.apply('logSoftmax', [x]);
  }

  /** log Σ exp over the last axis, which goes away unless kept. */
  logSumExp(x: Tensor, keepDims = false): Tensor {
    const largest = this.stopGradient(this.max(x, [-1], true));
    const total = this.log(this.sum(this.exp(this.sub(x, largest)), [-1], true));
    const result = this.add(total, largest);
    return keepDims ? result : this.reshape(result, x.shape.slice(0, -1));
  }

  /** Rows of axis 0: table [n, ...rest], ids [...] → [...ids, ...rest]. */
  gather(table: Tensor, ids: Tensor): Tensor {
    return this.apply('gather', [table, ids]);
  }

  /**
   * Rows x [n, ...rest] at other places: ids [m] → [m, ...rest]. `inverse` [n] says at which of the ids each row stands, for the
   * gradient, which no other id may have one of.
   */
  rearrange(x: Tensor, ids: Tensor, inverse: Tensor): Tensor {
    return this.apply('gather', [x, ids, inverse]);
  }

  /** updates [...ids, ...rest], ids [...] → [rows, ...rest], updates of one id added up. */
  scatterAddRows(updates: Tensor, ids: Tensor, rows: number): Tensor {
    return this.apply('scatterAddRows', [updates, ids], { rows });
  }

  /** x [..., v], ids [...] → [...], the entry of the last axis that the id names. */
  takeLast(x: Tensor, ids: Tensor): Tensor {
    return this.apply('takeLast', [x, ids]);
  }

  /** values [...], ids [...] → [..., width], zero but at the ids. */
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

  /**
   * Draws a token of each row of logits [rows, width], for runtimes with memory of their own: [rows, 3] with token, weight and
   * sum of weights.
   * @param settings [rows, 4]: 1 / temperature, top-k, top-p, a uniform number (below 0: greedy)
   */
  draw(logits: Tensor, settings: Tensor): Tensor {
    return this.apply('draw', [logits, settings]);
  }

  /** table [n, ...rest] with the rows at `places` [m] replaced by `rows` [m, ...rest]; for runtimes with memory of their own. */
  putRows(table: Tensor, rows: Tensor, places: Tensor): Tensor {
    return this.apply('putRows', [table, rows, places]);
  }

  /**
   * Attention of rows over keys and values in pages, for runtimes with memory of their own: q [rows, heads, size], k and v
   * [places, keyHeads, size]; `lists` float32 [slots, pages], `slots` and `positions` int32 [rows].
   */
  pagedAttention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    {
      lists,
      slots,
      positions,
    }: { readonly lists: Tensor; readonly slots: Tensor; readonly positions: Tensor },
    attributes: PagedAttentionAttributes,
  ): Tensor {
    return this.apply('pagedAttention', [q, k, v, lists, slots, positions], attributes);
  }

  #reduce(name: string, x: Tensor, axes: readonly number[] | undefined, keepDims: boolean): Tensor {
    const rank = x.shape.length;
    const along = axes?.map(axis => normalizeAxis(axis, rank, name)) ?? x.shape.map((_, axis) => axis);
    const sorted = [...new Set(along)].sort((a, b) => a - b);
    return sorted.length === 0 ? x : this.apply(name, [x], { axes: sorted, keepDims });
  }

  /** Operands of a broadcasting operation: what was repeated only to fit the other is taken as it was. */
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

  #append(
    operation: string,
    inputs: readonly Tensor[],
    attributes: Readonly<Record<string, AttributeValue>>,
    dtype: DType,
    shape: Shape,
  ): Tensor {
    const tensor = Object.freeze({ id: this.#nodes.length, operation, inputs, attributes, dtype, shape });
    this.#nodes.push(tensor);
    if (this.#stage !== undefined && inputs.length > 0) this.#stages.set(tensor, this.#stage);
    return tensor;
  }

  #claim(name: string): void {
    if (this.#inputs.has(name) || this.#parameters.has(name)) {
      throw new GraphError(`the name '${name}' is already an input or parameter`);
    }
  }

  #own(tensor: Tensor): void {
    if (this.#nodes[tensor.id] !== tensor) throw new GraphError('the tensor belongs to another GraphBuilder');
  }
}
