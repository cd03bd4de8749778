import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import { type DecoderConfig, ropeFrequencies } from './config.ts';

/** Added to attention scores that must not count; finite, so that a row with nothing to see stays finite. */
export const MASKED_SCORE = -1e9;

/** Which positions a batch of rows stands at, and what each may attend to. */
export interface SequenceLayout {
  /** cos and sin of the rotary angles, each [rows, time, headDimension / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** Added to the scores beyond the causal mask, broadcast to [rows, 1, time, time]; nothing when absent. */
  readonly attentionBias?: Tensor;
  /** Tokens come without padding, which only attention puts between them; with it when absent. */
  readonly packing?: PackedLayout;
}

/**
 * Where tokens without padding stand in padded rows, and the other way round. At least one token is padding, the last, and
 * at least one place: what has no other side is at those, and no gradient comes from there.
 */
export interface PackedLayout {
  /** int32 [rows · time]: the token at each place. */
  readonly places: Tensor;
  /** int32 [tokens]: the place of each token. */
  readonly tokens: Tensor;
}

/** Tokens [tokens, width] at their places in padded rows, [rows · time, width]. */
export function spread(g: GraphBuilder, x: Tensor, { places, tokens }: PackedLayout): Tensor {
  return g.rearrange(x, places, tokens);
}

/** What {@link spread} undoes: padded rows [rows · time, width] without their padding, [tokens, width]. */
export function collect(g: GraphBuilder, x: Tensor, { places, tokens }: PackedLayout): Tensor {
  return g.rearrange(x, tokens, places);
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

/**
 * Positions whose final states are wanted, of rows that start at position 0 and are padded on the right: `count` of every
 * row, with angles [rows, count, headDimension / 2] and a bias that hides what comes after each, [rows, 1, count, time].
 */
export interface SelectedPositions extends SequenceLayout {
  /** int32, indices of the selected tokens among all: [rows · count], or without padding as many as there are. */
  readonly tokens: Tensor;
  /** Where rows are packed, int32 [tokens of all]: where each stands among the selected, the last of which is padding. */
  readonly inverse?: Tensor;
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
): SelectedPositions {
  const [rows, count] = positions.shape;
  const half = config.headDimension / 2;
  const sequence = Int32Array.from({ length: time }, (_, t) => t);
  const { cos, sin } = ropeTables(config, sequence);
  const starts = Int32Array.from({ length: rows }, (_, row) => row * time);
  const keys = g.constant(sequence, [1, 1, 1, time]);
  const queries = g.reshape(g.cast(positions, 'float32'), [rows, 1, count, 1]);
  return {
    tokens: g.reshape(g.add(positions, g.constant(starts, [rows, 1], 'int32')), [rows * count]),
    cos: g.gather(g.constant(cos, [time, half]), positions),
    sin: g.gather(g.constant(sin, [time, half]), positions),
    attentionBias: g.where(g.less(queries, keys), g.constant(MASKED_SCORE), 0),
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
