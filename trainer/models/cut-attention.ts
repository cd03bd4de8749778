import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import { softcap } from './activation.ts';
import type { DecoderConfig } from './config.ts';
import { ropeColumns } from './rope.ts';
import { joinBiases, MASKED_SCORE } from './sequence-layout.ts';

/** cos and sin of rotary angles, each [rows, time, ropeWidth]. */
export interface Angles {
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/** Rotates heads [rows, time, heads, headDimension] by a layer's angles, if it has any. */
export function turnHeads(
  g: GraphBuilder,
  config: DecoderConfig,
  layer: number,
  x: Tensor,
  { cos, sin }: Angles,
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
