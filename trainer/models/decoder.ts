import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { DecoderConfig } from './config.ts';
import { hasAdapter, loraNames, loraScale } from './lora.ts';
import { layerPrefix, VALUE_HEAD_BIAS, VALUE_HEAD_WEIGHT } from './parameters.ts';
import { quantizedLinear } from './quantized.ts';
import { collect, type SelectedPositions, type SequenceLayout, spread } from './sequence-layout.ts';

/**
 * Final hidden states, normalized, of padded or packed rows. With a selection only those of the selected positions: the last
 * layer then computes keys and values of all tokens and everything else of the selected ones.
 *
 * @param ids int32 [rows, time], or [tokens] where rows are packed
 * @returns [tokens, hiddenSize], padding included where there is any, or of a selection [its tokens, hiddenSize]
 */
export function decoderHidden(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  layout: SequenceLayout,
  selection?: SelectedPositions,
): Tensor {
  const segments = decoderSegments(config);
  const all: QueryLayout = { ...layout, causal: true };
  let hidden = segments.embed(g, g.reshape(ids, [-1]));
  for (let layer = 0; layer < config.layers; layer++) {
    hidden = g.stage(() => {
      const selected = layer === config.layers - 1 ? selection : undefined;
      const asking = selected === undefined ? hidden : selectRows(g, hidden, selected);
      const projections = segments.project(g, layer, hidden, asking);
      const queries = selected === undefined ? all : { ...selected, causal: false };
      return segments.finishLayer(g, layer, asking, mixRows(g, config, projections, all, queries));
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

/** What attention of one layer reads: rows of normalized, projected and not yet rotated heads. */
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
  /** Hidden states after the last layer → normalized, as logits and values read them. */
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
      const output = linear(g, config, mixed, `${prefix}.self_attn.o_proj`, {
        outputs: hiddenSize,
        bias: config.outputBias,
      });
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

function selectRows(g: GraphBuilder, hidden: Tensor, { tokens, inverse }: SelectedPositions): Tensor {
  return inverse === undefined ? g.gather(hidden, tokens) : g.rearrange(hidden, tokens, inverse);
}

/** Tokens of every row that ask or are asked, with their angles. */
interface QueryLayout extends SequenceLayout {
  readonly causal: boolean;
}

/** Attention over a cut: projected heads in, [tokens that ask, heads · headDimension] out. */
function mixRows(
  g: GraphBuilder,
  config: DecoderConfig,
  { query, key, value }: Projections,
  all: QueryLayout,
  queries: QueryLayout,
): Tensor {
  const { heads, keyValueHeads, headDimension } = config;
  const split = (x: Tensor, { cos, packing }: QueryLayout, count: number) => {
    const [rows, time] = cos.shape;
    return g.reshape(packing ? spread(g, x, packing) : x, [rows, time, count, headDimension]);
  };
  const q = g.rope(split(query, queries, heads), queries.cos, queries.sin);
  const k = g.rope(split(key, all, keyValueHeads), all.cos, all.sin);
  const v = split(value, all, keyValueHeads);
  const mixed = g.attention(q, k, v, { causal: queries.causal, bias: queries.attentionBias });
  const rows = g.reshape(mixed, [-1, heads * headDimension]);
  return queries.packing ? collect(g, rows, queries.packing) : rows;
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
  const projected = linear(g, config, x, `${prefix}.${name}_proj`, {
    outputs: width,
    bias: config.queryKeyValueBias,
  });
  if (name === 'v' || !config.queryKeyNorm) return projected;
  const perHead = g.reshape(projected, [x.shape[0], count, headDimension]);
  const weight = `${prefix}.${name}_norm.weight`;
  return g.reshape(norm(g, config, perHead, weight, headDimension), [x.shape[0], width]);
}

function feedForward(g: GraphBuilder, config: DecoderConfig, x: Tensor, prefix: string): Tensor {
  const { intermediateSize, feedForwardBias: bias, hiddenSize } = config;
  const gate = linear(g, config, x, `${prefix}.gate_proj`, { outputs: intermediateSize, bias });
  const up = linear(g, config, x, `${prefix}.up_proj`, { outputs: intermediateSize, bias });
  return linear(g, config, g.mul(g.silu(gate), up), `${prefix}.down_proj`, { outputs: hiddenSize, bias });
}

function linear(
  g: GraphBuilder,
  config: DecoderConfig,
  x: Tensor,
  name: string,
  { outputs, bias }: { readonly outputs: number; readonly bias: boolean },
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const { quantization } = config;
  const product =
    quantization === undefined
      ? g.matmul(x, g.parameter(`${name}.weight`, [outputs, inputs]), { transposeB: true })
      : quantizedLinear(g, quantization, x, `${name}.weight`, outputs);
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
