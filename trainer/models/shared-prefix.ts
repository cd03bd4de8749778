import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { DecoderConfig } from './config.ts';
import { attend, causalBias, turnHeads } from './cut-attention.ts';
import { decoderSegments } from './decoder-segments.ts';
import { ropeWidth } from './rope.ts';
import { joinBiases, MASKED_SCORE, rightPadded, windowBias } from './sequence-layout.ts';

/** Keys, rotated, and values of a prefix in every layer, each [1, prefix, keyValueHeads, headDimension]. */
export interface PrefixCache {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/**
 * A sequence that others continue, padded on the right.
 * @param ids int32 [prefix]
 * @param last int32 [1], index of its last token
 * @returns keys and values for continuations, and the final hidden state of the last token [1, hiddenSize]
 */
export function decodePrefix(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  last: Tensor,
): { readonly cache: PrefixCache; readonly hidden: Tensor } {
  const segments = decoderSegments(config);
  const [length] = ids.shape;
  const angles = rightPadded(g, config, 1, length);
  const keys: Tensor[] = [];
  const values: Tensor[] = [];
  let hidden = segments.embed(g, ids);
  for (let layer = 0; layer < config.layers; layer++) {
    const { query, key, value } = segments.project(g, layer, hidden);
    const k = turnHeads(g, config, layer, splitHeads(g, config, key, 1), angles);
    const v = splitHeads(g, config, value, 1);
    keys.push(k);
    values.push(v);
    const q = turnHeads(g, config, layer, splitHeads(g, config, query, 1), angles);
    const bias = windowBias(g, windowOf(config, layer), undefined, length);
    const mixed = attend(g, config, [q, k, v], { causal: true, bias });
    hidden = segments.finishLayer(g, layer, hidden, joinHeads(g, mixed));
  }
  return { cache: { keys, values }, hidden: segments.finish(g, g.gather(hidden, last)) };
}

/** Continuations of one prefix, each seeing the prefix and itself. */
export interface ContinuationInputs {
  /** int32 [rows, time], padded on the right. */
  readonly ids: Tensor;
  /** cos and sin of the rotary angles at the positions after the prefix, each [time, ropeWidth]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  readonly cache: PrefixCache;
  /** [prefix]: 1 on its tokens, 0 on padding. */
  readonly prefixMask: Tensor;
}

/** @returns final hidden states [rows · time, hiddenSize] */
export function decodeContinuations(
  g: GraphBuilder,
  config: DecoderConfig,
  { ids, cache, prefixMask, ...tables }: ContinuationInputs,
): Tensor {
  const segments = decoderSegments(config);
  const [rows, time] = ids.shape;
  const [prefix] = prefixMask.shape;
  const width = ropeWidth(config);
  const ofRows = (table: Tensor) => g.broadcastTo(g.reshape(table, [1, time, width]), [rows, time, width]);
  const angles = { cos: ofRows(tables.cos), sin: ofRows(tables.sin) };
  const padding = g.reshape(g.mul(g.sub(1, prefixMask), MASKED_SCORE), [1, 1, 1, prefix]);
  const bias = g.concat([g.broadcastTo(padding, [1, 1, time, prefix]), causalBias(g, time)], 3);
  const after = (own: Tensor, before: Tensor) =>
    g.concat([g.broadcastTo(before, [rows, ...before.shape.slice(1)]), own], 1);
  let hidden = segments.embed(g, g.reshape(ids, [-1]));
  for (let layer = 0; layer < config.layers; layer++) {
    const { query, key, value } = segments.project(g, layer, hidden);
    const q = turnHeads(g, config, layer, splitHeads(g, config, query, rows), angles);
    const own = turnHeads(g, config, layer, splitHeads(g, config, key, rows), angles);
    const k = after(own, cache.keys[layer]);
    const v = after(splitHeads(g, config, value, rows), cache.values[layer]);
    const seen = joinBiases(g, bias, continuedWindow(g, windowOf(config, layer), prefixMask, time));
    hidden = segments.finishLayer(
      g,
      layer,
      hidden,
      joinHeads(g, attend(g, config, [q, k, v], { bias: seen })),
    );
  }
  return segments.finish(g, hidden);
}

function windowOf({ attentionLayers }: DecoderConfig, layer: number): number | null {
  return attentionLayers?.[layer].window ?? null;
}

/** [1, 1, time, prefix + time]: hides positions before the window of each position after the prefix. */
function continuedWindow(
  g: GraphBuilder,
  window: number | null,
  prefixMask: Tensor,
  time: number,
): Tensor | undefined {
  const [prefix] = prefixMask.shape;
  if (window === null || prefix + time <= window) return undefined;
  const sequence = (count: number, start: number) =>
    Float32Array.from({ length: count }, (_, i) => start + i);
  const length = g.reshape(g.sum(prefixMask), [1, 1, 1, 1]);
  const own = g.add(g.constant(sequence(time, 0), [1, 1, 1, time]), length);
  const keys = g.concat([g.constant(sequence(prefix, 0), [1, 1, 1, prefix]), own], 3);
  const queries = g.add(g.constant(sequence(time, 0), [1, 1, time, 1]), length);
  return g.where(g.less(queries, g.add(keys, window)), 0, g.constant(MASKED_SCORE));
}

function splitHeads(g: GraphBuilder, { headDimension }: DecoderConfig, x: Tensor, rows: number): Tensor {
  const [tokens, width] = x.shape;
  return g.reshape(x, [rows, tokens / rows, width / headDimension, headDimension]);
}

function joinHeads(g: GraphBuilder, mixed: Tensor): Tensor {
  const [rows, time, heads, headDimension] = mixed.shape;
  return g.reshape(mixed, [rows * time, heads * headDimension]);
}
