import {
  type AttentionAttributes,
  type AttentionGradientAttributes,
  type AttentionSizes,
  attentionSizes,
} from '../../graph/operations/attention.ts';
import {
  type BlockAttributes,
  type BlockMatmulAttributes,
  type BlockStorage,
  centerOf,
} from '../../graph/operations/blocks.ts';
import type { Tensor } from '../../graph/tensor.ts';
import { MICROSOFT, type ModelBuilder, TENSOR_TYPE } from './model-builder.ts';

/**
 * Queries in a block in training: this many times the head size, but at least the minimum. A block sees only the keys
 * up to its last query. That saves more with more keys; the cost of cutting grows with the head size.
 */
const BLOCK_SIZES = 2;
const MIN_BLOCK = 56;
/** Score of a hidden key; its weight underflows to 0. */
const MASKED_SCORE = -1e9;

/** Queries start … end of every head against the first `keys` keys. */
interface Block {
  readonly start: number;
  readonly end: number;
  readonly keys: number;
  /** [batch, keyHeads, groups · queries, keys] */
  readonly weights: string;
  /** [batch, keyHeads, groups · queries, size] */
  readonly queries: string;
}

/** Values that the backward pass takes from the forward pass; heads before time. */
interface SavedAttention {
  readonly blocks: readonly Block[];
  /** [batch, keyHeads, keys, size] */
  readonly key: string;
  readonly value: string;
}

const saved = new WeakMap<ModelBuilder, Map<Tensor, SavedAttention>>();

/** Attention without a gradient is one fused kernel; otherwise it is written out in blocks of queries. */
export function lowerAttention(
  context: ModelBuilder,
  node: Tensor,
  inputs: readonly string[],
  result: string,
): void {
  const differentiated = context
    .usersOf(node)
    .some(user => user.operation === 'attentionGradient' && user.inputs[3] === node);
  if (differentiated) lowerForTraining(context, node, inputs, result);
  else lowerFused(context, node, inputs, result);
}

function lowerFused(
  context: ModelBuilder,
  node: Tensor,
  [q, k, v, bias]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as AttentionAttributes;
  const { batch, queries, keys, heads, keyHeads, size } = attentionSizes(node.inputs, attributes);
  const rows = (x: string, time: number, count: number): string =>
    context.reshape(x, [batch, time, count * size]);
  const operands = [rows(q, queries, heads), rows(k, keys, keyHeads), rows(v, keys, keyHeads)];
  if (bias !== undefined) operands.push(bias);
  const mixed = context.emit('Attention', operands, {
    attributes: {
      is_causal: attributes.causal ? 1 : 0,
      scale: { float: attributes.scale },
      q_num_heads: heads,
      kv_num_heads: keyHeads,
    },
  });
  context.reshape(mixed, node.shape, result);
}

function lowerForTraining(
  context: ModelBuilder,
  node: Tensor,
  [q, k, v, bias]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as AttentionAttributes;
  const sizes = attentionSizes(node.inputs, attributes);
  const { batch, queries, keys, heads, keyHeads, groups, size } = sizes;
  const query = queriesByHead(context, q, sizes);
  const key = keysByHead(context, k);
  const value = keysByHead(context, v);
  const blocks: Block[] = [];
  const parts: string[] = [];
  for (const [start, end] of blockBounds(sizes, attributes.causal)) {
    const count = end - start;
    const seen = attributes.causal ? end : keys;
    const part = context.reshape(sliceOf(context, query, 3, [start, end], queries), [
      batch,
      keyHeads,
      groups * count,
      size,
    ]);
    const product = matmul(context, part, sliceOf(context, key, 2, [0, seen], keys), {
      transB: 1,
      scale: attributes.scale,
    });
    let scores = context.reshape(product, [batch, keyHeads, groups, count, seen]);
    if (attributes.causal) scores = context.emit('Add', [scores, causalMask(context, start, end)]);
    if (bias !== undefined)
      scores = context.emit('Add', [scores, biasOf(context, node.inputs[3], bias, [start, end], seen)]);
    const shape = [batch, keyHeads, groups * count, seen];
    const weights = context.reshape(context.emit('Softmax', [scores], { attributes: { axis: -1 } }), shape);
    const mixed = matmul(context, weights, sliceOf(context, value, 2, [0, seen], keys));
    parts.push(context.reshape(mixed, [batch, keyHeads, groups, count, size]));
    blocks.push({ start, end, keys: seen, weights, queries: part });
  }
  const joined = context.reshape(concat(context, parts, 3), [batch, heads, queries, size]);
  context.emit('Transpose', [joined], { attributes: { perm: [0, 2, 1, 3] } }, result);
  const known = saved.get(context) ?? new Map<Tensor, SavedAttention>();
  saved.set(context, known.set(node, { blocks, key, value }));
}

/**
 * All gradients of one attention at once. With weights P and result O, the gradient of the scores is P ∘ (dO Vᵀ −
 * rowsum(dO ∘ O)) (Dao et al., 2022); one more column of the product does the subtraction.
 */
export function lowerAttentionGradient(
  context: ModelBuilder,
  node: Tensor,
  [, , , result, upstream]: readonly string[],
): void {
  const attributes = node.attributes as AttentionGradientAttributes;
  const forward = node.inputs[3];
  const sizes = attentionSizes(node.inputs.slice(0, 3), attributes);
  const { batch, queries, keys, heads, keyHeads, groups, size } = sizes;
  const { blocks, key, value } = saved.get(context)!.get(forward)!;
  const wanted = new Map(
    context
      .usersOf(forward)
      .filter(user => user.operation === 'attentionGradient' && user.inputs[4] === node.inputs[4])
      .map(user => [user.attributes.wrt as AttentionGradientAttributes['wrt'], user]),
  );
  const upstreams = queriesByHead(context, upstream, sizes);
  const needsScores = wanted.has('query') || wanted.has('key');
  const extended = needsScores ? extend(context, upstreams, result, upstream, sizes) : undefined;
  const ones = needsScores
    ? concat(context, [value, context.filled([batch, keyHeads, keys, 1], 1)], 3)
    : undefined;
  const queryParts: string[] = [];
  const keyParts: string[] = [];
  const valueParts: string[] = [];
  for (const block of blocks) {
    const { start, end } = block;
    const count = groups * (end - start);
    const rows = (x: string, width: number): string =>
      context.reshape(sliceOf(context, x, 3, [start, end], queries), [batch, keyHeads, count, width]);
    if (wanted.has('value'))
      valueParts.push(matmul(context, block.weights, rows(upstreams, size), { transA: 1 }));
    if (extended === undefined || ones === undefined) continue;
    const shifted = matmul(
      context,
      rows(extended, size + 1),
      sliceOf(context, ones, 2, [0, block.keys], keys),
      { transB: 1 },
    );
    const scores = context.emit('Mul', [block.weights, shifted]);
    const { scale } = attributes;
    if (wanted.has('query')) {
      const part = matmul(context, scores, sliceOf(context, key, 2, [0, block.keys], keys), { scale });
      queryParts.push(context.reshape(part, [batch, keyHeads, groups, end - start, size]));
    }
    if (wanted.has('key')) keyParts.push(matmul(context, scores, block.queries, { transA: 1, scale }));
  }
  const finish = (wrt: AttentionGradientAttributes['wrt'], joined: () => string): void => {
    const target = wanted.get(wrt);
    if (target === undefined) return;
    const name = context.resultName(target);
    context.emit('Transpose', [joined()], { attributes: { perm: [0, 2, 1, 3] } }, name);
    context.bind(target, name);
  };
  finish('query', () => context.reshape(concat(context, queryParts, 3), [batch, heads, queries, size]));
  finish('key', () => sumPrefixes(context, keyParts, blocks));
  finish('value', () => sumPrefixes(context, valueParts, blocks));
}

/** [dO, −rowsum(dO ∘ O)] by head: [batch, keyHeads, groups, queries, size + 1]. */
function extend(
  context: ModelBuilder,
  upstreams: string,
  result: string,
  upstream: string,
  sizes: AttentionSizes,
): string {
  const products = context.emit('Mul', [upstream, result]);
  const totals = context.emit('ReduceSum', [products, context.int64([-1])], { attributes: { keepdims: 1 } });
  const shift = queriesByHead(context, context.emit('Neg', [totals]), { ...sizes, size: 1 });
  return concat(context, [upstreams, shift], 4);
}

/** Adds up tensors [batch, keyHeads, keys of the block, size] that all start at key 0 but end at different keys. */
function sumPrefixes(context: ModelBuilder, parts: readonly string[], blocks: readonly Block[]): string {
  const ends = [...new Set(blocks.map(block => block.keys))];
  const segments = ends.map((end, i) => {
    const start = i === 0 ? 0 : ends[i - 1];
    const pieces = parts.flatMap((part, j) =>
      blocks[j].keys >= end ? [sliceOf(context, part, 2, [start, end], blocks[j].keys)] : [],
    );
    return pieces.length === 1 ? pieces[0] : context.emit('Sum', pieces);
  });
  return concat(context, segments, 2);
}

function blockBounds({ queries, size }: AttentionSizes, causal: boolean): [number, number][] {
  const block = Math.max(MIN_BLOCK, BLOCK_SIZES * size);
  const count = causal ? Math.max(1, Math.round(queries / block)) : 1;
  const bound = (i: number): number => Math.round((i * queries) / count);
  return Array.from({ length: count }, (_, i) => [bound(i), bound(i + 1)]);
}

/** [batch, queries, heads, size] → [batch, keyHeads, groups, queries, size] */
function queriesByHead(context: ModelBuilder, x: string, sizes: AttentionSizes): string {
  const { batch, queries, keyHeads, groups, size } = sizes;
  const byHead = context.emit('Transpose', [x], { attributes: { perm: [0, 2, 1, 3] } });
  return context.reshape(byHead, [batch, keyHeads, groups, queries, size]);
}

/** [batch, keys, keyHeads, size] → [batch, keyHeads, keys, size] */
function keysByHead(context: ModelBuilder, x: string): string {
  return context.emit('Transpose', [x], { attributes: { perm: [0, 2, 1, 3] } });
}

function causalMask(context: ModelBuilder, start: number, end: number): string {
  const mask = new Float32Array((end - start) * end);
  for (let query = start; query < end; query++) {
    mask.fill(MASKED_SCORE, (query - start) * end + query + 1, (query - start + 1) * end);
  }
  return context.floats(mask, [end - start, end]);
}

function biasOf(
  context: ModelBuilder,
  bias: Tensor,
  name: string,
  [start, end]: readonly [start: number, end: number],
  seen: number,
): string {
  const [batches, , queries, keys] = bias.shape;
  const rows = queries === 1 ? name : sliceOf(context, name, 2, [start, end], queries);
  const part = keys === 1 ? rows : sliceOf(context, rows, 3, [0, seen], keys);
  return context.reshape(part, [batches, 1, 1, queries === 1 ? 1 : end - start, keys === 1 ? 1 : seen]);
}

function sliceOf(
  context: ModelBuilder,
  x: string,
  axis: number,
  [start, end]: readonly [start: number, end: number],
  extent: number,
): string {
  if (start === 0 && end === extent) return x;
  return context.emit('Slice', [x, context.int64([start]), context.int64([end]), context.int64([axis])]);
}

function concat(context: ModelBuilder, parts: readonly string[], axis: number): string {
  return parts.length === 1 ? parts[0] : context.emit('Concat', parts, { attributes: { axis } });
}

interface ProductOptions {
  readonly transA?: number;
  readonly transB?: number;
  readonly scale?: number;
}

function matmul(context: ModelBuilder, a: string, b: string, options: ProductOptions = {}): string {
  const { transA = 0, transB = 0, scale = 1 } = options;
  if (transA === 0 && transB === 0 && scale === 1) return context.emit('MatMul', [a, b]);
  const attributes = { transA, transB, alpha: { float: scale } };
  return context.emit('FusedMatMul', [a, b], { domain: MICROSOFT, attributes });
}

/** MatMulNBits rounds each block of x to 8 bits and multiplies integers. */
const INTEGER_PRODUCTS = 4;
const BYTE_VALUES = 256;

/**
 * Where the weight is a constant, ONNX Runtime packs its codes once and multiplies integers; minimums are multiplied with the
 * sums of x over blocks. Else the matrix is unpacked to float32 before the product.
 */
export function lowerBlockMatmul(
  context: ModelBuilder,
  node: Tensor,
  [x, codes, scales, minimums]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as BlockMatmulAttributes;
  const { bits, block, outputs, inputs, transposed } = attributes;
  if (transposed || !context.isConstant(node.inputs[1])) {
    // Unpacking waits for x; otherwise all matrices would be unpacked at the start and kept until the backward pass.
    const waiting = context.emit('Add', [scales, context.zeroAfter(x)]);
    const weights = unpack(context, attributes, [codes, waiting, minimums], [outputs, inputs]);
    context.emit('Gemm', [x, weights], { attributes: { transB: Number(!transposed) } }, result);
    return;
  }
  const settings = {
    domain: MICROSOFT,
    attributes: { K: inputs, N: outputs, bits, block_size: block, accuracy_level: INTEGER_PRODUCTS },
  };
  if (minimums === undefined) {
    context.emit('MatMulNBits', [x, codes, scales], settings, result);
    return;
  }
  const product = context.emit('MatMulNBits', [x, codes, scales], settings);
  const sums = context.shared(`sums of ${block} ${x}`, () => {
    const blocks = context.reshape(x, [-1, inputs / block, block]);
    return context.emit('ReduceSum', [blocks, context.int64([2])], { attributes: { keepdims: 0 } });
  });
  context.emit('Gemm', [sums, minimums, product], { attributes: { transB: 1 } }, result);
}

export function lowerBlockRows(
  context: ModelBuilder,
  node: Tensor,
  [ids, ...parts]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as BlockAttributes;
  const rows = parts.map(table => context.emit('Gather', [table, ids], { attributes: { axis: 0 } }));
  unpack(context, attributes, rows, [-1, attributes.inputs], result);
}

/** Float32 weights of rows in blocks. */
function unpack(
  context: ModelBuilder,
  { bits, block, minimums: hasMinimums }: BlockStorage,
  [codes, scales, minimums]: readonly string[],
  shape: readonly number[],
  result?: string,
): string {
  const levels = bits === 8 ? wholeLevels(context, codes) : pairedLevels(context, codes);
  const each = (values: string) => context.reshape(values, [-1, 1]);
  const scaled = context.emit('Mul', [context.reshape(levels, [-1, block]), each(scales)]);
  const added = hasMinimums ? context.emit('Add', [scaled, each(minimums)]) : scaled;
  return context.reshape(added, shape, result);
}

function wholeLevels(context: ModelBuilder, codes: string): string {
  const numbers = context.emit('Cast', [codes], { attributes: { to: TENSOR_TYPE.float32 } });
  return context.emit('Sub', [numbers, context.float(centerOf(8))]);
}

/** Looks a byte up in a table of the pairs of levels of its two codes. */
function pairedLevels(context: ModelBuilder, codes: string): string {
  const pairs = new Float32Array(2 * BYTE_VALUES);
  for (let byte = 0; byte < BYTE_VALUES; byte++) {
    pairs[2 * byte] = (byte & 15) - centerOf(4);
    pairs[2 * byte + 1] = (byte >> 4) - centerOf(4);
  }
  const indices = context.emit('Cast', [codes], { attributes: { to: TENSOR_TYPE.int32 } });
  return context.emit('Gather', [context.floats(pairs, [BYTE_VALUES, 2]), indices]);
}
