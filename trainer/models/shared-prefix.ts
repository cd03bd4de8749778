import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { DecoderConfig } from './config.ts';
import { decoderSegments } from './decoder.ts';
import { MASKED_SCORE, rightPadded } from './sequence-layout.ts';

/** Keys, rotated, and values of a prefix in every layer, each [1, prefix, keyValueHeads, headDimension]. */
export interface PrefixCache {
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/**
 * A sequence that others continue, padded on the right.
 * @param ids int32 [prefix]
 * @param last int32 [1], where its last token stands
 * @returns what continuations attend to, and the final hidden state of the last token [1, hiddenSize]
 */
export function decodePrefix(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  last: Tensor,
): { readonly cache: PrefixCache; readonly hidden: Tensor } {
  const segments = decoderSegments(config);
  const [length] = ids.shape;
  const { cos, sin } = rightPadded(g, config, 1, length);
  const keys: Tensor[] = [];
  const values: Tensor[] = [];
  let hidden = segments.embed(g, ids);
  for (let layer = 0; layer < config.layers; layer++) {
    const { query, key, value } = segments.project(g, layer, hidden);
    const k = g.rope(splitHeads(g, config, key, 1), cos, sin);
    const v = splitHeads(g, config, value, 1);
    keys.push(k);
    values.push(v);
    const mixed = g.attention(g.rope(splitHeads(g, config, query, 1), cos, sin), k, v, { causal: true });
    hidden = segments.finishLayer(g, layer, hidden, joinHeads(g, mixed));
  }
  return { cache: { keys, values }, hidden: segments.finish(g, g.gather(hidden, last)) };
}

/** Continuations of one prefix, each seeing the prefix and itself. */
export interface ContinuationInputs {
  /** int32 [rows, time], padded on the right. */
  readonly ids: Tensor;
  /** cos and sin of the rotary angles at the positions after the prefix, each [time, headDimension / 2]. */
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
  const half = config.headDimension / 2;
  const angles = (table: Tensor) => g.broadcastTo(g.reshape(table, [1, time, half]), [rows, time, half]);
  const [cos, sin] = [angles(tables.cos), angles(tables.sin)];
  const padding = g.reshape(g.mul(g.sub(1, prefixMask), MASKED_SCORE), [1, 1, 1, prefix]);
  const bias = g.concat([g.broadcastTo(padding, [1, 1, time, prefix]), causalBias(g, time)], 3);
  const after = (own: Tensor, before: Tensor) =>
    g.concat([g.broadcastTo(before, [rows, ...before.shape.slice(1)]), own], 1);
  let hidden = segments.embed(g, g.reshape(ids, [-1]));
  for (let layer = 0; layer < config.layers; layer++) {
    const { query, key, value } = segments.project(g, layer, hidden);
    const q = g.rope(splitHeads(g, config, query, rows), cos, sin);
    const k = after(g.rope(splitHeads(g, config, key, rows), cos, sin), cache.keys[layer]);
    const v = after(splitHeads(g, config, value, rows), cache.values[layer]);
    hidden = segments.finishLayer(g, layer, hidden, joinHeads(g, g.attention(q, k, v, { bias })));
  }
  return segments.finish(g, hidden);
}

/** [1, 1, time, time]: hides what comes after each. */
function causalBias(g: GraphBuilder, time: number): Tensor {
  const scores = Float32Array.from({ length: time * time }, (_, i) =>
    i % time > Math.floor(i / time) ? MASKED_SCORE : 0,
  );
  return g.constant(scores, [1, 1, time, time]);
}

function splitHeads(g: GraphBuilder, { headDimension }: DecoderConfig, x: Tensor, rows: number): Tensor {
  const [tokens, width] = x.shape;
  return g.reshape(x, [rows, tokens / rows, width / headDimension, headDimension]);
}

function joinHeads(g: GraphBuilder, mixed: Tensor): Tensor {
  const [rows, time, heads, headDimension] = mixed.shape;
  return g.reshape(mixed, [rows * time, heads * headDimension]);
}
