import { remembered } from '../../shared/remembered.ts';
import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import { doraFactor, doraFactorName } from './adapters/dora.ts';
import { type AdapterDropout, dropOut, hasAdapter, loraNames, loraScale } from './adapters/lora.ts';
import type { Activation, DecoderConfig, ExpertsConfig } from './config.ts';
import { weightProduct, weightRows } from './frozen-weights.ts';
import {
  EMBEDDINGS,
  expertPrefix,
  layerPrefix,
  normNames,
  OUTPUT_LAYER,
  routerName,
  VALUE_HEAD_BIAS,
  VALUE_HEAD_WEIGHT,
} from './parameters.ts';
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
  const queriesOf = (layer: number) => (layer === last ? asking : all);
  const windows = new Map<number | null, Tensor | undefined>();
  const bias = config.attentionLayers?.map(({ window }, layer) => {
    const queries = queriesOf(layer);
    const make = () => windowBias(g, window, queries.positions, layout.cos.shape[1]);
    return queries === all ? remembered(windows, window, make) : make();
  });
  let hidden = segments.embed(g, g.reshape(ids, [-1]));
  for (let layer = 0; layer < config.layers; layer++) {
    hidden = g.stage(() => {
      const selected = layer === last ? selection : undefined;
      const rows = selected === undefined ? hidden : selectRows(g, hidden, selected);
      const projections = segments.project(g, layer, hidden, rows);
      const queries = queriesOf(layer);
      const mixed = mixRows(g, config, { layer, projections, all, queries, bias: bias?.[layer] });
      return segments.finishLayer(g, layer, rows, mixed);
    });
  }
  return segments.finish(g, hidden);
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

/** Rows that a layer's attention reads: normalized, projected and not yet rotated heads. */
interface Projections {
  /** [rows, heads · headDimension] */
  readonly query: Tensor;
  /** [rows, keyValueHeads · headDimension] */
  readonly key: Tensor;
  readonly value: Tensor;
}

/** Options of a decoder's adapters. */
interface AdapterOptions {
  /** Dropout of the adapters' inputs during learning; none when absent. */
  readonly dropout?: AdapterDropout | undefined;
  /** DoRA's factors are parameters that the caller updates with the weights; computed from the weights when absent. */
  readonly storedFactors?: boolean;
}

/** A decoder's shape, and how its adapters are computed. */
interface SegmentConfig extends DecoderConfig, AdapterOptions {}

/** A decoder split at its attentions, for a cache outside of the tensor program. Rows are tokens in any order. */
interface DecoderSegments {
  /** ids int32 [rows] → hidden states [rows, hiddenSize] before the first layer. */
  embed(g: GraphBuilder, ids: Tensor): Tensor;
  /** Hidden states before a layer → inputs of its attention; queries only of the rows `asking`, if given. */
  project(g: GraphBuilder, layer: number, hidden: Tensor, asking?: Tensor): Projections;
  /**
   * Hidden states before a layer and the result of its attention [rows, heads · headDimension] → hidden states after
   * the layer.
   */
  finishLayer(g: GraphBuilder, layer: number, hidden: Tensor, mixed: Tensor): Tensor;
  /** Hidden states after the last layer → normalized ones, for logits and values. */
  finish(g: GraphBuilder, hidden: Tensor): Tensor;
}

export function decoderSegments(shape: DecoderConfig, adapters: AdapterOptions = {}): DecoderSegments {
  const config: SegmentConfig = { ...shape, ...adapters };
  const { hiddenSize, vocabularySize } = config;
  /** Rows through a norm of a layer; unchanged where the family has none there. */
  const normed = (g: GraphBuilder, x: Tensor, name: string | null) =>
    name === null ? x : norm(g, config, x, name, hiddenSize);
  return {
    embed: (g, ids) =>
      g.mul(weightRows(g, config, ids, EMBEDDINGS, [vocabularySize, hiddenSize]), config.embeddingScale),
    project(g, layer, hidden, asking = hidden) {
      const prefix = `${layerPrefix(layer)}.self_attn`;
      const { beforeAttention } = normNames(config, layer);
      const x = normed(g, hidden, beforeAttention);
      const all = projectAll(g, config, x, prefix, asking === hidden ? 'qkv' : 'kv');
      const query =
        all.query ?? projectAll(g, config, normed(g, asking, beforeAttention), prefix, 'q').query!;
      return { query, key: all.key!, value: all.value! };
    },
    finishLayer(g, layer, hidden, mixed) {
      const prefix = layerPrefix(layer);
      const names = normNames(config, layer);
      const output = linear(g, config, mixed, `${prefix}.self_attn.o_proj`, {
        outputs: hiddenSize,
        bias: config.outputBias,
      });
      const attended = g.add(hidden, normed(g, output, names.afterAttention));
      const x = normed(g, attended, names.beforeFeedForward);
      const fed = config.experts?.layers[layer]
        ? feedExperts(g, config, x, layer)
        : feedForward(g, config, x, `${prefix}.mlp`);
      return g.add(attended, normed(g, fed, names.afterFeedForward));
    },
    finish: (g, hidden) => norm(g, config, hidden, 'model.norm.weight', hiddenSize),
  };
}

/** Queries, keys and values of rows, or some of them. */
function projectAll(
  g: GraphBuilder,
  config: SegmentConfig,
  x: Tensor,
  prefix: string,
  wanted: 'qkv' | 'q' | 'kv',
): Partial<Projections> {
  const queries = config.heads * config.headDimension;
  const keys = config.keyValueHeads * config.headDimension;
  const bias = config.queryKeyValueBias;
  const fused = config.fusedProjections
    ? linear(g, config, x, `${prefix}.qkv_proj`, { outputs: queries + 2 * keys, bias })
    : null;
  const project = (name: 'q' | 'k' | 'v', start: number, outputs: number) =>
    fused === null
      ? linear(g, config, x, `${prefix}.${name}_proj`, { outputs, bias })
      : g.slice(fused, 1, start, start + outputs);
  const head = (name: 'q' | 'k', start: number, outputs: number) =>
    turnedFirst(
      g,
      config,
      normHeads(g, config, project(name, start, outputs), `${prefix}.${name}_norm.weight`),
    );
  return {
    ...(wanted === 'kv' ? {} : { query: head('q', 0, queries) }),
    ...(wanted === 'q' ? {} : { key: head('k', queries, keys), value: project('v', queries + keys, keys) }),
  };
}

/** Queries or keys [rows, width] through the family's norm for them. */
function normHeads(g: GraphBuilder, config: DecoderConfig, x: Tensor, name: string): Tensor {
  const { queryKeyNorm, headDimension } = config;
  if (queryKeyNorm === 'none') return x;
  const [rows, width] = x.shape;
  if (queryKeyNorm === 'width') return norm(g, config, x, name, width);
  const perHead = g.reshape(x, [rows, width / headDimension, headDimension]);
  return g.reshape(norm(g, config, perHead, name, headDimension), [rows, width]);
}

/**
 * Where only a part of each head is rotated, reorders the head: each half of the rotated part goes first in its half.
 * Rotating the whole head by angles that are 0 for the rest then gives the same scores. Queries and keys are reordered
 * alike.
 */
function turnedFirst(g: GraphBuilder, { headDimension, rotaryDimension }: DecoderConfig, x: Tensor): Tensor {
  if (rotaryDimension === headDimension) return x;
  const [rows, width] = x.shape;
  const perHead = g.reshape(x, [rows, width / headDimension, headDimension]);
  const [turned, rest] = [rotaryDimension / 2, (headDimension - rotaryDimension) / 2];
  const part = (start: number, length: number) => g.slice(perHead, 2, start, start + length);
  const parts = [
    part(0, turned),
    part(2 * turned, rest),
    part(turned, turned),
    part(2 * turned + rest, rest),
  ];
  return g.reshape(g.concat(parts, 2), [rows, width]);
}

function feedForward(
  g: GraphBuilder,
  config: SegmentConfig,
  x: Tensor,
  prefix: string,
  width = config.intermediateSize,
): Tensor {
  const { feedForwardBias: bias, hiddenSize } = config;
  const fused = config.fusedProjections
    ? linear(g, config, x, `${prefix}.gate_up_proj`, { outputs: 2 * width, bias })
    : null;
  const project = (name: 'gate' | 'up', start: number) =>
    fused === null
      ? linear(g, config, x, `${prefix}.${name}_proj`, { outputs: width, bias })
      : g.slice(fused, 1, start, start + width);
  const gate = activate(g, config.activation, project('gate', 0));
  return linear(g, config, g.mul(gate, project('up', width)), `${prefix}.down_proj`, {
    outputs: hiddenSize,
    bias,
  });
}

function feedExperts(g: GraphBuilder, config: SegmentConfig, x: Tensor, layer: number): Tensor {
  const experts = config.experts!;
  const router = linear(g, config, x, routerName(layer), { outputs: experts.count, bias: false });
  return mixExperts(g, experts, router, index =>
    feedForward(g, config, x, expertPrefix(layer, index), experts.intermediateSize),
  );
}

function linear(
  g: GraphBuilder,
  config: SegmentConfig,
  x: Tensor,
  name: string,
  { outputs, bias }: { readonly outputs: number; readonly bias: boolean },
): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const { lora, dropout, storedFactors = false } = config;
  const product = (rows: Tensor) => weightProduct(g, config, rows, `${name}.weight`, outputs);
  const biased = (y: Tensor) => (bias ? g.add(y, g.parameter(`${name}.bias`, [outputs])) : y);
  if (!hasAdapter(lora, name)) return biased(product(x));
  const names = loraNames(name);
  const a = g.parameter(names.a, [lora.rank, inputs]);
  const b = g.parameter(names.b, [outputs, lora.rank]);
  const read = dropout === undefined ? x : dropOut(g, dropout, x, name);
  const low = g.matmul(read, a, { transposeB: true });
  const added = g.matmul(g.mul(low, loraScale(lora)), b, { transposeB: true });
  if (!lora.dora) return g.add(biased(product(x)), added);
  const factor = storedFactors
    ? g.parameter(doraFactorName(name), [outputs])
    : doraFactor(g, lora, name, { a, b, projected: product(a) });
  const changed = g.mul(g.add(product(read), added), factor);
  return biased(read === x ? changed : g.add(changed, g.sub(product(x), product(read))));
}

function norm(g: GraphBuilder, config: DecoderConfig, x: Tensor, name: string, size: number): Tensor {
  const weight = g.parameter(name, [size]);
  return g.rmsNorm(x, config.normsAddOne ? g.add(weight, 1) : weight, config.normEpsilon);
}

/**
 * A mixture of experts, each computed for every token and weighted: 0 where the router did not choose it.
 * @param routerLogits [tokens, experts]
 * @param expert output of expert number `index`, [tokens, hiddenSize]
 */
function mixExperts(
  g: GraphBuilder,
  experts: ExpertsConfig,
  routerLogits: Tensor,
  expert: (index: number) => Tensor,
): Tensor {
  const weights = routingWeights(g, experts, routerLogits);
  const parts = Array.from({ length: experts.count }, (_, index) =>
    g.mul(expert(index), g.slice(weights, 1, index, index + 1)),
  );
  return parts.reduce((sum, part) => g.add(sum, part));
}

/**
 * The router's probabilities [tokens, experts]: 0 for experts that are not chosen. Among equals the first is chosen.
 */
function routingWeights(
  g: GraphBuilder,
  { count, perToken, normalized }: ExpertsConfig,
  logits: Tensor,
): Tensor {
  const probabilities = g.softmax(logits);
  const numbers = g.constant(
    Float32Array.from({ length: count }, (_, index) => index),
    [1, count],
  );
  let left = g.stopGradient(probabilities);
  let chosen: Tensor | null = null;
  for (let round = 0; round < perToken; round++) {
    const best = g.equal(left, g.max(left, [-1], true));
    const first = g.neg(g.max(g.neg(g.where(best, numbers, count)), [-1], true));
    const pick = g.equal(numbers, first);
    chosen = g.where(pick, 1, chosen ?? 0);
    left = g.where(pick, -1, left);
  }
  const kept = chosen === null ? probabilities : g.mul(probabilities, chosen);
  return normalized ? g.div(kept, g.sum(kept, [-1], true)) : kept;
}

function activate(g: GraphBuilder, activation: Activation, x: Tensor): Tensor {
  switch (activation) {
    case 'silu':
      return g.silu(x);
    case 'gelu':
      return g.mul(g.mul(x, 0.5), g.add(g.erf(g.mul(x, Math.SQRT1_2)), 1));
    case 'gelu_tanh':
      return geluTanh(g, x);
  }
}

/** x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), Hendrycks and Gimpel's approximation of the Gaussian error linear unit. */
function geluTanh(g: GraphBuilder, x: Tensor): Tensor {
  const inner = g.mul(x, g.add(g.mul(g.mul(x, x), 0.044715), 1));
  const bent = g.tanh(g.mul(inner, Math.sqrt(2 / Math.PI)));
  return g.mul(g.mul(x, 0.5), g.add(bent, 1));
}
