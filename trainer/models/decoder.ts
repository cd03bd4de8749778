import type { GraphBuilder, Tensor } from '../graph/graph.ts';
import { type DecoderConfig, ropeFrequencies } from './config.ts';
import { layerPrefix, VALUE_HEAD_BIAS, VALUE_HEAD_WEIGHT } from './parameters.ts';

/** Added to attention scores that must not count; finite, so that a row with nothing to see stays finite. */
const MASKED_SCORE = -1e9;

/** Which positions a batch of padded rows stands at, and what each may attend to. */
export interface SequenceLayout {
  /** cos and sin of the rotary angles, each [rows, time, headDimension / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** Added to the scores, broadcast to [rows, 1, time, time]. */
  readonly attentionBias: Tensor;
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
  return { cos: table(cos), sin: table(sin), attentionBias: causalBias(g, time) };
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
  return { ...angles, attentionBias: g.add(keys, causalBias(g, time)) };
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
 * Final hidden states, normalised, of padded rows.
 * @param ids int32 [rows, time]
 * @returns [rows · time, hiddenSize]
 */
export function decoderHidden(
  g: GraphBuilder,
  config: DecoderConfig,
  ids: Tensor,
  layout: SequenceLayout,
): Tensor {
  const [rows, time] = ids.shape;
  const { hiddenSize } = config;
  let hidden = g.gather(embeddings(g, config), g.reshape(ids, [rows * time]));
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = layerPrefix(layer);
    const first = norm(g, config, hidden, `${prefix}.input_layernorm.weight`, hiddenSize);
    hidden = g.add(hidden, attention(g, config, first, `${prefix}.self_attn`, rows, time, layout));
    const second = norm(g, config, hidden, `${prefix}.post_attention_layernorm.weight`, hiddenSize);
    hidden = g.add(hidden, feedForward(g, config, second, `${prefix}.mlp`));
  }
  return norm(g, config, hidden, 'model.norm.weight', hiddenSize);
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

function embeddings(g: GraphBuilder, config: DecoderConfig): Tensor {
  return g.parameter('model.embed_tokens.weight', [config.vocabularySize, config.hiddenSize]);
}

/** Causal self-attention of normalised states [rows · time, hiddenSize]; grouped queries share their key and value. */
function attention(
  g: GraphBuilder,
  config: DecoderConfig,
  x: Tensor,
  prefix: string,
  rows: number,
  time: number,
  layout: SequenceLayout,
): Tensor {
  const { heads, keyValueHeads, headDimension, queryKeyValueBias } = config;
  const groups = heads / keyValueHeads;
  const project = (name: string, count: number) => {
    const out = linear(g, x, `${prefix}.${name}_proj`, count * headDimension, queryKeyValueBias);
    return g.reshape(out, [rows, time, count, headDimension]);
  };
  const rotate = (name: 'q' | 'k', projected: Tensor) => {
    const normed = config.queryKeyNorm
      ? norm(g, config, projected, `${prefix}.${name}_norm.weight`, headDimension)
      : projected;
    return g.transpose(g.rope(normed, layout.cos, layout.sin), [0, 2, 1, 3]);
  };
  const query = g.reshape(rotate('q', project('q', heads)), [
    rows,
    keyValueHeads,
    groups * time,
    headDimension,
  ]);
  const key = rotate('k', project('k', keyValueHeads));
  const value = g.transpose(project('v', keyValueHeads), [0, 2, 1, 3]);
  const scores = g.matmul(query, key, { transposeB: true, scale: 1 / Math.sqrt(headDimension) });
  const perHead = g.add(g.reshape(scores, [rows, heads, time, time]), layout.attentionBias);
  const weights = g.reshape(g.softmax(perHead), [rows, keyValueHeads, groups * time, time]);
  const mixed = g.reshape(g.matmul(weights, value), [rows, heads, time, headDimension]);
  const joined = g.reshape(g.transpose(mixed, [0, 2, 1, 3]), [rows * time, heads * headDimension]);
  return linear(g, joined, `${prefix}.o_proj`, config.hiddenSize, config.outputBias);
}

function feedForward(g: GraphBuilder, config: DecoderConfig, x: Tensor, prefix: string): Tensor {
  const { intermediateSize, feedForwardBias, hiddenSize } = config;
  const gate = linear(g, x, `${prefix}.gate_proj`, intermediateSize, feedForwardBias);
  const up = linear(g, x, `${prefix}.up_proj`, intermediateSize, feedForwardBias);
  return linear(g, g.mul(g.silu(gate), up), `${prefix}.down_proj`, hiddenSize, feedForwardBias);
}

function linear(g: GraphBuilder, x: Tensor, name: string, outputs: number, bias: boolean): Tensor {
  const inputs = x.shape[x.shape.length - 1];
  const product = g.matmul(x, g.parameter(`${name}.weight`, [outputs, inputs]), { transposeB: true });
  return bias ? g.add(product, g.parameter(`${name}.bias`, [outputs])) : product;
}

function norm(g: GraphBuilder, config: DecoderConfig, x: Tensor, name: string, size: number): Tensor {
  return g.rmsNorm(x, g.parameter(name, [size]), config.normEpsilon);
}

function causalBias(g: GraphBuilder, time: number): Tensor {
  const bias = new Float32Array(time * time);
  for (let query = 0; query < time; query++) {
    bias.fill(MASKED_SCORE, query * time + query + 1, (query + 1) * time);
  }
  return g.constant(bias, [1, 1, time, time]);
}
