import { gradients } from '../../trainer/tensor/graph/gradients.ts';
import { type Graph, GraphBuilder } from '../../trainer/tensor/graph/graph.ts';
import type { Tensor } from '../../trainer/tensor/graph/tensor.ts';

const FLOAT_BYTES = 4;
const BLOCK_SIZE = 16;

/** Extents that kernels of a decoder have. */
export interface KernelShape {
  readonly hidden: number;
  readonly feedForward: number;
  readonly vocabulary: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headSize: number;
  /** Tokens of a micro-batch, and of each of its sequences. */
  readonly tokens: number;
  readonly time: number;
  /** Sequences that decode at once, and the tokens in the cache of each. */
  readonly batch: number;
  readonly context: number;
}

export const SHAPES: Readonly<Record<string, KernelShape | undefined>> = {
  tiny: {
    hidden: 64,
    feedForward: 160,
    vocabulary: 512,
    heads: 4,
    keyHeads: 2,
    headSize: 16,
    tokens: 128,
    time: 64,
    batch: 8,
    context: 64,
  },
  'qwen2.5-0.5b': {
    hidden: 896,
    feedForward: 4864,
    vocabulary: 151_936,
    heads: 14,
    keyHeads: 2,
    headSize: 64,
    tokens: 4096,
    time: 1024,
    batch: 256,
    context: 1024,
  },
};

/** A small graph with one output `y`. All its inputs stay on the device. */
export interface BenchKernel {
  readonly name: string;
  readonly graph: Graph;
  /** Floating-point operations. */
  readonly operations: number;
  /** Bytes that have to be read and written at least. */
  readonly bytes: number;
}

export function kernels(shape: KernelShape): BenchKernel[] {
  const { hidden, feedForward, vocabulary, tokens, batch } = shape;
  return [
    product('up projection', tokens, hidden, feedForward),
    product('down projection', tokens, feedForward, hidden),
    product('gradient of its weights', feedForward, tokens, hidden, { transposeA: true }),
    product('logits', Math.min(tokens, 2048), hidden, vocabulary),
    product('up projection of a decoding batch', batch, hidden, feedForward),
    product('up projection of one row', 1, hidden, feedForward),
    ...attentions(shape),
    pagedAttention(shape),
    rowKernel('RMS norm', [tokens, hidden], (g, x) => g.rmsNormalize(x, 1e-6)),
    rowKernel('SiLU', [tokens, feedForward], (g, x) => g.silu(x)),
    rowKernel('log-softmax of logits', [Math.min(tokens, 2048), vocabulary], (g, x) => g.logSoftmax(x)),
    drawing('drawing tokens', batch, vocabulary, [1, 0, 1, 0.5, 0]),
    drawing('drawing tokens by top-k and top-p', batch, vocabulary, [1, 50, 0.9, 0.5, 0]),
  ];
}

function product(
  name: string,
  rows: number,
  inner: number,
  columns: number,
  options: { readonly transposeA?: boolean } = {},
): BenchKernel {
  const g = new GraphBuilder();
  const a = g.input('a', 'float32', options.transposeA ? [inner, rows] : [rows, inner]);
  const b = g.input('b', 'float32', options.transposeA ? [inner, columns] : [columns, inner]);
  g.output('y', g.matmul(a, b, options.transposeA ? { transposeA: true } : { transposeB: true }));
  const elements = rows * inner + inner * columns + rows * columns;
  return {
    name: `${name}, ${rows} × ${inner} × ${columns}`,
    graph: g.build(),
    operations: 2 * rows * inner * columns,
    bytes: FLOAT_BYTES * elements,
  };
}

function attentions({ heads, keyHeads, headSize, tokens, time }: KernelShape): BenchKernel[] {
  const rows = tokens / time;
  const build = (backward: boolean): Graph => {
    const g = new GraphBuilder();
    const q = g.input('q', 'float32', [rows, time, heads, headSize]);
    const k = g.input('k', 'float32', [rows, time, keyHeads, headSize]);
    const v = g.input('v', 'float32', [rows, time, keyHeads, headSize]);
    const y = g.attention(q, k, v, { causal: true });
    if (!backward) g.output('y', y);
    else {
      const [dq, dk, dv] = gradients(g, g.sum(g.mul(y, y)), [q, k, v]);
      g.output('y', dq);
      g.output('k gradient', dk);
      g.output('v gradient', dv);
    }
    return g.build();
  };
  // Two products of [time, size] by [size, time], of which the causal mask leaves half.
  const operations = 2 * tokens * time * heads * headSize;
  const elements = tokens * (2 * heads + 2 * keyHeads) * headSize;
  return [
    { name: 'attention', graph: build(false), operations, bytes: FLOAT_BYTES * elements },
    {
      name: 'attention, forward and backward',
      graph: build(true),
      operations: 3.5 * operations,
      bytes: 3 * FLOAT_BYTES * elements,
    },
  ];
}

function pagedAttention({ heads, keyHeads, headSize, batch, context }: KernelShape): BenchKernel {
  const pages = context / BLOCK_SIZE;
  const g = new GraphBuilder();
  const cache = [batch * context, keyHeads, headSize];
  const numbers = (values: readonly number[]): Tensor => g.constant(values, [batch], 'int32');
  const tables = g.constant(
    Array.from({ length: batch * pages }, (_, page) => page),
    [batch, pages],
  );
  const y = g.pagedAttention(
    [
      g.input('q', 'float32', [batch, heads, headSize]),
      g.input('k', 'float32', cache),
      g.input('v', 'float32', cache),
      tables,
      numbers(Array.from({ length: batch }, (_, row) => row)),
      numbers(Array(batch).fill(context - 1)),
    ],
    { blockSize: BLOCK_SIZE, scale: 1 / Math.sqrt(headSize), window: 0, softcap: 0 },
  );
  g.output('y', y);
  return {
    name: `attention over the cache, ${batch} sequences of ${context}`,
    graph: g.build(),
    operations: 4 * batch * context * heads * headSize,
    bytes: FLOAT_BYTES * 2 * batch * context * keyHeads * headSize,
  };
}

function drawing(name: string, rows: number, width: number, settings: readonly number[]): BenchKernel {
  const g = new GraphBuilder();
  const each = Array.from({ length: rows }, () => settings).flat();
  g.output('y', g.sample(g.input('x', 'float32', [rows, width]), g.constant(each, [rows, settings.length])));
  return {
    name: `${name}, ${rows} × ${width}`,
    graph: g.build(),
    operations: rows * width,
    bytes: FLOAT_BYTES * rows * width,
  };
}

function rowKernel(
  name: string,
  extents: readonly number[],
  build: (g: GraphBuilder, x: Tensor) => Tensor,
): BenchKernel {
  const g = new GraphBuilder();
  g.output('y', build(g, g.input('x', 'float32', extents)));
  const elements = extents.reduce((a, b) => a * b, 1);
  return {
    name: `${name}, ${extents.join(' × ')}`,
    graph: g.build(),
    operations: elements,
    bytes: 2 * FLOAT_BYTES * elements,
  };
}
