import type { GraphBuilder, Tensor } from '../graph/graph.ts';
import { type DecoderConfig, ropeFrequencies } from './config.ts';
import { hasAdapter, loraNames, loraScale } from './lora.ts';
import { layerPrefix, VALUE_HEAD_BIAS, VALUE_HEAD_WEIGHT } from './parameters.ts';

/** Added to attention scores that must not count; finite, so that a row with nothing to see stays finite. */
const MASKED_SCORE = -1e9;

/** Which positions a batch of padded rows stands at, and what each may attend to. */
export interface SequenceLayout {
  /** cos and sin of the rotary angles, each [rows, time, headDimension / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** Added to the scores beyond the causal mask, broadcast to [rows, 1, time, time]; nothing when absent. */
  readonly attentionBias?: Tensor;
}

/**
 * Rows that start at position 0 and are padded on the right: causal attention alone keeps real tokens from seeing the
 * padding, so there is nothing to mask.
 */
export function rightPadded(
  g: GraphBuilder,
  config: DecoderConfig,
  rows: number,
  time: number,
): SequenceLayout {
  const positions = Int32Array.from({ length: time }, (_, t) => t);
  const { cos, sin } = ropeTables(config, positions);
  const half = config.headDimension / 2;
  const table = (data: Float32Array) => g.broadcastTo(g.constant(data, [1, time, half]), [rows, time, half]);
  return { cos: table(cos), sin: table(sin) };
}

/**
 * Rows padded anywhere: `attentionMask` [rows, time] is 1 on real tokens and `angles` holds cos and sin of their
 * positions.
 */
export function paddedAnywhere(
  g: GraphBuilder,
  attentionMask: Tensor,
  angles: { readonly cos: Tensor; readonly sin: Tensor },
): SequenceLayout {
  const [rows, time] = attentionMask.shape;
  const keys = g.reshape(g.mul(g.sub(1, attentionMask), MASKED_SCORE), [rows, 1, 1, time]);
  return { ...angles, attentionBias: keys };
}

/** Positions whose final states are wanted, of rows that start at position 0 and are padded on the right. */
export interface Selection {
  /** Number of selected positions of every row. */
  readonly count: number;
  /** Indices of the selected tokens among all, [rows · count]. */
  readonly tokens: Tensor;
  /** Angles of the selected positions, [rows, count, headDimension / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** Hides what comes after a selected position, [rows, 1, count, time]. */
  readonly attentionBias: Tensor;
}

/**
 * Selects positions of every row; which ones is an input, so that one program serves all batches of a shape.
 * @param positions int32 [rows, count], each from 0 to time − 1
 */
export function selectPositions(
  g: GraphBuilder,
  config: DecoderConfig,
  positions: Tensor,
  time: number,
): Selection {
  const [rows, count] = positions.shape;
  const half = config.headDimension / 2;
  const sequence = Int32Array.from({ length: time }, (_, t) => t);
  const { cos, sin } = ropeTables(config, sequence);
  const starts = Int32Array.from({ length: rows }, (_, row) => row * time);
  const keys = g.constant(sequence, [1, 1, 1, time]);
  const queries = g.reshape(g.cast(positions, 'float32'), [rows, 1, count, 1]);
  return {
    count,
    tokens: g.reshape(g.add(positions, g.constant(starts, [rows, 1], 'int32')), [rows * count]),
    cos: g.gather(g.constant(cos, [time, half]), positions),
    sin: g.gather(g.constant(sin, [time, half]), positions),
    attentionBias: g.where(g.less(queries, keys), g.constant(MASKED_SCORE), 0),
  };
}

/** Rows in which several sequences stand side by side. */
export interface PackedLayout extends SequenceLayout {
  readonly attentionBias: Tensor;
  /** The same for selected positions, which must not see other sequences either. */
  select(selection: Selection): Selection;
}

/**
 * Rows that hold several sequences: each begins at position 0 and sees itself alone.
 * @param segments int32 [rows, time], the sequence a token belongs to
 * @param places int32 [rows, time], its position there
 */
export function packedRows(
  g: GraphBuilder,
  config: DecoderConfig,
  segments: Tensor,
  places: Tensor,
): PackedLayout {
  const [rows, time] = segments.shape;
  const half = config.headDimension / 2;
  const tables = ropeTables(
    config,
    Int32Array.from({ length: time }, (_, t) => t),
  );
  const angles = (table: Float32Array) => g.gather(g.constant(table, [time, half]), places);
  const [cos, sin] = [angles(tables.cos), angles(tables.sin)];
  const numbers = g.cast(segments, 'float32');
  const keys = g.reshape(numbers, [rows, 1, 1, time]);
  const apart = (queries: Tensor) => g.where(g.equal(queries, keys), 0, g.constant(MASKED_SCORE));
  return {
    cos,
    sin,
    attentionBias: apart(g.reshape(numbers, [rows, 1, time, 1])),
    select(selection) {
      const { count, tokens, attentionBias } = selection;
      const at = (table: Tensor, width: number) => g.gather(g.reshape(table, [rows * time, width]), tokens);
      return {
        ...selection,
        cos: g.reshape(at(cos, half), [rows, count, half]),
        sin: g.reshape(at(sin, half), [rows, count, half]),
        attentionBias: g.add(attentionBias, apart(g.reshape(at(numbers, 1), [rows, 1, count, 1]))),
      };
    },
  };
}

/** cos and sin of every position's rotary angles, each [positions, headDimension / 2] in row-major order. */
export function ropeTables(
  config: DecoderConfig,
  positions: ArrayLike<number>,
): { readonly cos: Float32Array; readonly sin: Float32Array } {
  const frequencies = ropeFrequencies(config);
  const half = frequencies.length;
  const cos = new Float32Array(positions.length * half);
  const sin = new Float32Array(positions.length * half);
  for (let t = 0; t < positions.length; t++) {
    for (let i = 0; i < half; i++) {
      const angle = positions[t] * frequencies[i];
      cos[t * half + i] = Math.cos(angle);
      sin[t * half + i] = Math.sin(angle);
    }
  }
  return { cos, sin };
}

/**
 * Final hidden states, normalised, of padded rows. With a selection only those of the selected positions: the last layer
 * then computes keys and values of all tokens and everything else of the selected ones.
 *
 * @param ids int32 [rows, time]
 * @returns [rows · time, hiddenSize], or [rows · count, hiddenSize] of a selection
 */
export function decoderHidden(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  layout: SequenceLayout,
  selection?: Selection,
): Tensor {
  const [rows, time] = ids.shape;
  const segments = decoderSegments(config);
  const all: QueryLayout = { ...layout, time, causal: true };
  let hidden = segments.embed(g, g.reshape(ids, [rows * time]));
  for (let layer = 0; layer < config.layers; layer++) {
    hidden = g.stage(() => {
      const selected = layer === config.layers - 1 ? selection : undefined;
      const asking = selected === undefined ? hidden : g.gather(hidden, selected.tokens);
      const projections = segments.project(g, layer, hidden, asking);
      const queries = selected === undefined ? all : { ...selected, time: selected.count, causal: false };
      return segments.finishLayer(g, layer, asking, mixRows(g, config, projections, rows, all, queries));
    });
  }
  return segments.finish(g, hidden);
}

/** Logits [n, vocabularySize] of final hidden states [n, hiddenSize]. */
export function decoderLogits(g: GraphBuilder, config: DecoderConfig, hidden: Tensor): Tensor {
  const table = config.tiedEmbeddings
    ? embeddings(g, config)
    : g.parameter('lm_head.weight', [config.vocabularySize, config.hiddenSize]);
  return g.matmul(hidden, table, { transposeB: true });
}

/** The value head's estimates [n] at final hidden states [n, hiddenSize]. */
export function decoderValues(g: GraphBuilder, config: DecoderConfig, hidden: Tensor): Tensor {
  const weight = g.parameter(VALUE_HEAD_WEIGHT, [1, config.hiddenSize]);
  const bias = g.parameter(VALUE_HEAD_BIAS, [1]);
  return g.reshape(g.add(g.matmul(hidden, weight, { transposeB: true }), bias), [hidden.shape[0]]);
}

/** What attention of one layer reads: rows of normalised, projected and not yet rotated heads. */
export interface Projections {
  /** [rows, heads · headDimension] */
  readonly query: Tensor;
  /** [rows, keyValueHeads · headDimension] */
  readonly key: Tensor;
  readonly value: Tensor;
}

/** A decoder cut at its attentions, for a cache that lives outside of the tensor program. Rows are any tokens. */
export interface DecoderSegments {
  /** ids int32 [rows] → hidden states [rows, hiddenSize] before the first layer. */
  embed(g: GraphBuilder, ids: Tensor): Tensor;
  /** Hidden states before a layer → what its attention reads; queries of other rows where `asking` is given. */
  project(g: GraphBuilder, layer: number, hidden: Tensor, asking?: Tensor): Projections;
  /** Hidden states before a layer and what its attention gave [rows, heads · headDimension] → those after it. */
  finishLayer(g: GraphBuilder, layer: number, hidden: Tensor, mixed: Tensor): Tensor;
  /** Hidden states after the last layer → normalised, as logits and values read them. */
  finish(g: GraphBuilder, hidden: Tensor): Tensor;
}

export function decoderSegments(config: DecoderConfig): DecoderSegments {
  const { hiddenSize } = config;
  return {
    embed: (g, ids) => g.gather(embeddings(g, config), ids),
    project(g, layer, hidden, asking = hidden) {
      const prefix = `${layerPrefix(layer)}.self_attn`;
      const normed = (rows: Tensor) =>
        norm(g, config, rows, `${layerPrefix(layer)}.input_layernorm.weight`, hiddenSize);
      const x = normed(hidden);
      return {
        query: projectHeads(g, config, asking === hidden ? x : normed(asking), prefix, 'q'),
        key: projectHeads(g, config, x, prefix, 'k'),
        value: projectHeads(g, config, x, prefix, 'v'),
      };
    },
    finishLayer(g, layer, hidden, mixed) {
      const prefix = layerPrefix(layer);
      const output = linear(g, config, mixed, `${prefix}.self_attn.o_proj`, hiddenSize, config.outputBias);
      const attended = g.add(hidden, output);
      const x = norm(g, config, attended, `${prefix}.post_attention_layernorm.weight`, hiddenSize);
      return g.add(attended, feedForward(g, config, x, `${prefix}.mlp`));
    },
    finish: (g, hidden) => norm(g, config, hidden, 'model.norm.weight', hiddenSize),
  };
}

function embeddings(g: GraphBuilder, config: DecoderConfig): Tensor {
  return g.parameter('model.embed_tokens.weight', [config.vocabularySize, config.hiddenSize]);
}

/** Tokens of every row that ask or are asked, with their angles. */
interface QueryLayout extends SequenceLayout {
  readonly time: number;
  readonly causal: boolean;
}

/** Attention over a cut: projected heads in, [rows · queries.time, heads · headDimension] out. */
function mixRows(
  g: GraphBuilder,
  config: DecoderConfig,
  { query, key, value }: Projections,
  rows: number,
  all: QueryLayout,
  queries: QueryLayout,
): Tensor {
  const { heads, keyValueHeads, headDimension } = config;
  const split = (x: Tensor, time: number, count: number) => g.reshape(x, [rows, time, count, headDimension]);
  const q = g.rope(split(query, queries.time, heads), queries.cos, queries.sin);
  const k = g.rope(split(key, all.time, keyValueHeads), all.cos, all.sin);
  const v = split(value, all.time, keyValueHeads);
  const mixed = g.attention(q, k, v, { causal: queries.causal, bias: queries.attentionBias });
  return g.reshape(mixed, [rows * queries.time, heads * headDimension]);
}

function projectHeads(
  g: GraphBuilder,
  config: DecoderConfig,
  x: Tensor,
  prefix: string,
  name: 'q' | 'k' | 'v',
): Tensor {
  const { headDimension } = config;
  const count = name === 'q' ? config.heads : config.keyValueHeads;
  const width = count * headDimension;
  const projected = linear(g, config, x, `${prefix}.${name}_proj`, width, config.queryKeyValueBias);
  if (name === 'v' || !config.queryKeyNorm) return projected;
  const perHead = g.reshape(projected, [x.shape[0], count, headDimension]);
  const weight = `${prefix}.${name}_norm.weight`;
  return g.reshape(norm(g, config, perHead, weight, headDimension), [x.shape[0], width]);
}

function feedForward(g: GraphBuilder, config: DecoderConfig, x: Tensor, prefix: string): Tensor {
  const { intermediateSize, feedForwardBias, hiddenSize } = config;
  const gate = linear(g, config, x, `${prefix}.gate_proj`, intermediateSize, feedForwardBias);
  const up = linear(g, config, x, `${prefix}.up_proj`, intermediateSize, feedForwardBias);
  return linear(g, config, g.mul(g.silu(gate), up), `${prefix}.down_proj`, hiddenSize, feedForwardBias);
}

function linear(
  g: GraphBuilder,
  config: DecoderConfig,
  x: Tensor,
  name: string,
  outputs: number,
  bias: boolean,
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const product = g.matmul(x, g.parameter(`${name}.weight`, [outputs, inputs]), { transposeB: true });
  const biased = bias ? g.add(product, g.parameter(`${name}.bias`, [outputs])) : product;
  const { lora } = config;
  if (!hasAdapter(lora, name)) return biased;
  const { a, b } = loraNames(name);
  const low = g.matmul(x, g.parameter(a, [lora.rank, inputs]), { transposeB: true });
  const up = g.parameter(b, [outputs, lora.rank]);
  return g.add(biased, g.matmul(g.mul(low, loraScale(lora)), up, { transposeB: true }));
}

function norm(g: GraphBuilder, config: DecoderConfig, x: Tensor, name: string, size: number): Tensor {
  return g.rmsNorm(x, g.parameter(name, [size]), config.normEpsilon);
}
