import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { AdapterDropout } from './adapters/lora.ts';
import type { DecoderConfig } from './config.ts';
import { ropeColumns, ropeTables, ropeWidth } from './rope.ts';

/** Added to hidden attention scores; finite, so that a row without visible keys stays finite. */
export const MASKED_SCORE = -1e9;

/** Positions of a batch of rows, and the positions that each may attend to. */
export interface SequenceLayout {
  /** cos and sin of the rotary angles, each [rows, time, ropeWidth]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** Added to the scores beyond the causal mask, broadcast to [rows, 1, time, time]; nothing when absent. */
  readonly attentionBias?: Tensor;
  /** Positions of the queries, float32 broadcast to [rows, 1, time, 1]; 0, 1, … when absent. */
  readonly positions?: Tensor;
  /** Tokens have no padding, except inside attention; padded when absent. */
  readonly packing?: PackedLayout;
  /** Dropout of the inputs of adapters; none when absent. */
  readonly dropout?: AdapterDropout;
}

/**
 * Map between tokens without padding and padded rows, in both directions. At least one token, the last, and at least
 * one place are padding: tokens and places without a counterpart point there, and get no gradient from there.
 */
export interface PackedLayout {
  /** int32 [rows · time]: the token at each place. */
  readonly places: Tensor;
  /** int32 [tokens]: the place of each token. */
  readonly tokens: Tensor;
  /** Places may share tokens, and their gradients add up; no two share one when absent. */
  readonly shared?: boolean;
}

/** Tokens [tokens, width] at their places in padded rows, [rows · time, width]. */
export function spread(g: GraphBuilder, x: Tensor, { places, tokens, shared }: PackedLayout): Tensor {
  return shared ? g.gather(x, places) : g.rearrange(x, places, tokens);
}

/** The inverse of {@link spread}: padded rows [rows · time, width] without their padding, [tokens, width]. */
export function collect(g: GraphBuilder, x: Tensor, { places, tokens, shared }: PackedLayout): Tensor {
  return shared ? g.gather(x, tokens) : g.rearrange(x, tokens, places);
}

/**
 * Rows that start at position 0 and are padded on the right: causal attention by itself keeps real tokens from seeing
 * the padding, so there is nothing to mask.
 */
export function rightPadded(
  g: GraphBuilder,
  config: DecoderConfig,
  rows: number,
  time: number,
): SequenceLayout {
  const positions = Int32Array.from({ length: time }, (_, t) => t);
  const { cos, sin } = ropeTables(config, positions);
  const width = ropeWidth(config);
  const table = (data: Float32Array) =>
    g.broadcastTo(g.constant(data, [1, time, width]), [rows, time, width]);
  return { cos: table(cos), sin: table(sin) };
}

/**
 * Requested positions of rows that start at position 0 and are padded on the right: `count` of every row, with angles
 * [rows, count, ropeWidth] and a bias that hides later positions, [rows, 1, count, time].
 */
export interface SelectedPositions extends SequenceLayout {
  /** int32, indices of the selected tokens among all: [rows · count], or fewer without padding. */
  readonly tokens: Tensor;
  /** Set where rows are packed, int32 [tokens of all]: index of each among the selected, the last of which is padding. */
  readonly inverse?: Tensor;
}

/**
 * Selects positions of every row; they are an input, so one program serves all batches of a shape.
 * @param positions int32 [rows, count], each from 0 to time − 1
 */
export function selectPositions(
  g: GraphBuilder,
  config: DecoderConfig,
  positions: Tensor,
  time: number,
): SelectedPositions {
  const [rows, count] = positions.shape;
  const width = ropeWidth(config);
  const sequence = Int32Array.from({ length: time }, (_, t) => t);
  const { cos, sin } = ropeTables(config, sequence);
  const starts = Int32Array.from({ length: rows }, (_, row) => row * time);
  const keys = g.constant(sequence, [1, 1, 1, time]);
  const queries = g.reshape(g.cast(positions, 'float32'), [rows, 1, count, 1]);
  return {
    tokens: g.reshape(g.add(positions, g.constant(starts, [rows, 1], 'int32')), [rows * count]),
    cos: g.gather(g.constant(cos, [time, width]), positions),
    sin: g.gather(g.constant(sin, [time, width]), positions),
    attentionBias: g.where(g.less(queries, keys), g.constant(MASKED_SCORE), 0),
    positions: queries,
  };
}

/**
 * Bias that lets a query see only the last `window` positions up to its own; undefined where that hides nothing.
 * @param positions of the queries, float32 broadcast to [rows, 1, queries, 1]; 0, 1, … when undefined
 * @param keys at positions 0, 1, …
 */
export function windowBias(
  g: GraphBuilder,
  window: number | null,
  positions: Tensor | undefined,
  keys: number,
): Tensor | undefined {
  if (window === null || keys <= window) return undefined;
  if (positions === undefined) {
    const scores = Float32Array.from({ length: keys * keys }, (_, i) =>
      i % keys > Math.floor(i / keys) - window ? 0 : MASKED_SCORE,
    );
    return g.constant(scores, [1, 1, keys, keys]);
  }
  const last = Float32Array.from({ length: keys }, (_, key) => key + window);
  return g.where(g.less(positions, g.constant(last, [1, 1, 1, keys])), 0, g.constant(MASKED_SCORE));
}

/** The sum of biases, any of which may be absent. */
export function joinBiases(g: GraphBuilder, ...biases: readonly (Tensor | undefined)[]): Tensor | undefined {
  const there = biases.filter(bias => bias !== undefined);
  return there.length === 0 ? undefined : there.reduce((sum, bias) => g.add(sum, bias));
}

/** cap · tanh(x / cap); x itself where there is no cap. */
export function softcap(g: GraphBuilder, x: Tensor, cap: number | null): Tensor {
  return cap === null ? x : g.mul(g.tanh(g.mul(x, 1 / cap)), cap);
}

/** Rotates heads [rows, time, heads, headDimension] by a layer's angles, if it has any. */
export function turnHeads(
  g: GraphBuilder,
  config: DecoderConfig,
  layer: number,
  x: Tensor,
  { cos, sin }: Pick<SequenceLayout, 'cos' | 'sin'>,
): Tensor {
  const columns = ropeColumns(config, layer);
  if (columns === null) return x;
  const [start, end] = columns;
  return g.rope(x, g.slice(cos, 2, start, end), g.slice(sin, 2, start, end));
}

/**
 * Attention of a decoder, its scores scaled and capped as the config says: q [rows, queries, heads, size], k and v [rows, keys,
 * keyValueHeads, size].
 */
export function attend(
  g: GraphBuilder,
  config: DecoderConfig,
  [q, k, v]: readonly [q: Tensor, k: Tensor, v: Tensor],
  options: { readonly causal?: boolean; readonly bias?: Tensor },
): Tensor {
  const scale = scoreScale(config);
  if (config.attentionSoftcap === null) return g.attention(q, k, v, { ...options, scale });
  return cappedAttention(g, [q, k, v], { ...options, scale, cap: config.attentionSoftcap });
}

/** Factor on attention scores. */
export function scoreScale({ attentionScale, headDimension }: DecoderConfig): number {
  return attentionScale ?? 1 / Math.sqrt(headDimension);
}

/** Attention from primitives, for scores that are capped before a bias is added. */
function cappedAttention(
  g: GraphBuilder,
  [q, k, v]: readonly [q: Tensor, k: Tensor, v: Tensor],
  options: {
    readonly causal?: boolean;
    readonly bias?: Tensor;
    readonly scale: number;
    readonly cap: number;
  },
): Tensor {
  const [rows, queries, heads, size] = q.shape;
  const [, keys, keyHeads] = k.shape;
  const byHead = (x: Tensor) => g.transpose(x, [0, 2, 1, 3]);
  const grouped = g.reshape(byHead(q), [rows, keyHeads, (heads / keyHeads) * queries, size]);
  const product = g.matmul(grouped, byHead(k), { transposeB: true, scale: options.scale });
  const scores = softcap(g, g.reshape(product, [rows, heads, queries, keys]), options.cap);
  const bias = joinBiases(g, options.causal ? causalBias(g, queries) : undefined, options.bias);
  const weights = g.softmax(bias === undefined ? scores : g.add(scores, bias));
  const split = g.reshape(weights, [rows, keyHeads, (heads / keyHeads) * queries, keys]);
  return byHead(g.reshape(g.matmul(split, byHead(v)), [rows, heads, queries, size]));
}

/** [1, 1, time, time]: hides what comes after each. */
function causalBias(g: GraphBuilder, time: number): Tensor {
  const scores = Float32Array.from({ length: time * time }, (_, i) =>
    i % time > Math.floor(i / time) ? MASKED_SCORE : 0,
  );
  return g.constant(scores, [1, 1, time, time]);
}
