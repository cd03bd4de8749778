import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { DecoderConfig } from './config.ts';
import { decoderSegments, type Projections } from './decoder-segments.ts';
import { weightProduct } from './frozen-weights.ts';
import { EMBEDDINGS, OUTPUT_LAYER, VALUE_HEAD_BIAS, VALUE_HEAD_WEIGHT } from './parameters.ts';
import {
  attend,
  collect,
  joinBiases,
  type SelectedPositions,
  type SequenceLayout,
  softcap,
  spread,
  turnHeads,
  windowBias,
} from './sequence-layout.ts';

/**
 * Final hidden states, normalized, of padded or packed rows. A selection limits them to its positions: the last layer
 * then computes keys and values of all tokens and everything else only of the selected ones.
 * @param ids int32 [rows, time], or [tokens] where rows are packed
 * @returns [tokens, hiddenSize], including any padding, or of a selection [its tokens, hiddenSize]
 */
export function decoderHidden(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  layout: SequenceLayout,
  selection?: SelectedPositions,
): Tensor {
  const segments = decoderSegments(config, { dropout: layout.dropout });
  const all: QueryLayout = { ...layout, causal: true };
  const last = config.layers - 1;
  const asking = selection === undefined ? all : { ...selection, causal: false };
  const biases = config.attentionLayers?.map(({ window }, layer) => ({
    window,
    queries: layer === last ? asking : all,
  }));
  const bias = biasesByWindow(g, layout.cos.shape[1], biases ?? []);
  let hidden = segments.embed(g, g.reshape(ids, [-1]));
  for (let layer = 0; layer < config.layers; layer++) {
    hidden = g.stage(() => {
      const selected = layer === last ? selection : undefined;
      const rows = selected === undefined ? hidden : selectRows(g, hidden, selected);
      const projections = segments.project(g, layer, hidden, rows);
      const queries = layer === last ? asking : all;
      const mixed = mixRows(g, config, { layer, projections, all, queries, bias: bias[layer] });
      return segments.finishLayer(g, layer, rows, mixed);
    });
  }
  return segments.finish(g, hidden);
}

/** Bias tensors for each layer's window, made once for layers that share it. */
function biasesByWindow(
  g: GraphBuilder,
  time: number,
  layers: readonly { readonly window: number | null; readonly queries: QueryLayout }[],
): readonly (Tensor | undefined)[] {
  const made = new Map<QueryLayout, Map<number, Tensor | undefined>>();
  return layers.map(({ window, queries }) => {
    if (window === null) return undefined;
    const known = made.get(queries) ?? new Map<number, Tensor | undefined>();
    made.set(queries, known);
    if (!known.has(window)) known.set(window, windowBias(g, window, queries.positions, time));
    return known.get(window);
  });
}

/**
 * Logits [n, vocabularySize] of final hidden states [n, hiddenSize].
 * @param inverseTemperature factor on the logits, []
 */
export function decoderLogits(
  g: GraphBuilder,
  config: DecoderConfig,
  hidden: Tensor,
  inverseTemperature?: Tensor,
): Tensor {
  const table = config.tiedEmbeddings ? EMBEDDINGS : OUTPUT_LAYER;
  const logits = (x: Tensor) => weightProduct(g, config, x, table, config.vocabularySize);
  if (inverseTemperature === undefined) return softcap(g, logits(hidden), config.logitSoftcap);
  // Without a cap, applying the temperature to the hidden states is equivalent and takes fewer products.
  if (config.logitSoftcap === null) return logits(g.mul(hidden, inverseTemperature));
  return g.mul(softcap(g, logits(hidden), config.logitSoftcap), inverseTemperature);
}

/** The value head's estimates [n] at final hidden states [n, hiddenSize]. */
export function decoderValues(g: GraphBuilder, config: DecoderConfig, hidden: Tensor): Tensor {
  const weight = g.parameter(VALUE_HEAD_WEIGHT, [1, config.hiddenSize]);
  const bias = g.parameter(VALUE_HEAD_BIAS, [1]);
  return g.reshape(g.add(g.matmul(hidden, weight, { transposeB: true }), bias), [hidden.shape[0]]);
}

function selectRows(g: GraphBuilder, hidden: Tensor, { tokens, inverse }: SelectedPositions): Tensor {
  return inverse === undefined ? g.gather(hidden, tokens) : g.rearrange(hidden, tokens, inverse);
}

/** Query tokens of every row, with their angles. */
interface QueryLayout extends SequenceLayout {
  readonly causal: boolean;
}

/** Attention between the segments: projected heads in, [query tokens, heads · headDimension] out. */
function mixRows(
  g: GraphBuilder,
  config: DecoderConfig,
  attention: {
    readonly layer: number;
    readonly projections: Projections;
    readonly all: QueryLayout;
    readonly queries: QueryLayout;
    /** Bias of the layer's window. */
    readonly bias: Tensor | undefined;
  },
): Tensor {
  const { heads, keyValueHeads, headDimension } = config;
  const { layer, projections, all, queries } = attention;
  const split = (x: Tensor, { cos, packing }: QueryLayout, count: number) => {
    const [rows, time] = cos.shape;
    return g.reshape(packing ? spread(g, x, packing) : x, [rows, time, count, headDimension]);
  };
  const q = turnHeads(g, config, layer, split(projections.query, queries, heads), queries);
  const k = turnHeads(g, config, layer, split(projections.key, all, keyValueHeads), all);
  const v = split(projections.value, all, keyValueHeads);
  const bias = joinBiases(g, queries.attentionBias, attention.bias);
  const mixed = attend(g, config, [q, k, v], { causal: queries.causal, bias });
  const rows = g.reshape(mixed, [-1, heads * headDimension]);
  return queries.packing ? collect(g, rows, queries.packing) : rows;
}
