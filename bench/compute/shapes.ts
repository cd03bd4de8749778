import { type DecoderConfig, scratchConfig } from '../../trainer/models/config.ts';

/** A decoder of the Qwen2 family and the batch it is measured on. */
export interface Shape {
  readonly name: string;
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  /** Heads of keys and values; fewer than `heads` for grouped queries. */
  readonly keyValueHeads: number;
  readonly feedForward: number;
  readonly vocabulary: number;
  /** Sequences of a batch, and tokens of each in training. */
  readonly batch: number;
  readonly time: number;
  /** Tokens of each prompt and of each continuation in decoding. */
  readonly prompt: number;
  readonly generated: number;
}

export const SHAPES: readonly Shape[] = [
  {
    name: '0.8M',
    hidden: 128,
    layers: 4,
    heads: 4,
    keyValueHeads: 4,
    feedForward: 320,
    vocabulary: 512,
    batch: 16,
    time: 128,
    prompt: 32,
    generated: 64,
  },
  {
    name: 'nano',
    hidden: 64,
    layers: 3,
    heads: 4,
    keyValueHeads: 4,
    feedForward: 160,
    vocabulary: 46,
    batch: 32,
    time: 160,
    prompt: 24,
    generated: 8,
  },
];

export function configOf(shape: Shape): DecoderConfig {
  return scratchConfig({
    vocabularySize: shape.vocabulary,
    hiddenSize: shape.hidden,
    layers: shape.layers,
    heads: shape.heads,
    keyValueHeads: shape.keyValueHeads,
    intermediateSize: shape.feedForward,
    maxPositions: 512,
  });
}

/**
 * Floating-point operations of a training step by the usual count (Chowdhery et al., 2022): 6 a weight and token, and
 * 12 · layers · hidden · time a token for attention.
 */
export function trainingOperations(shape: Shape, weights: number): number {
  const perToken = 6 * weights + 12 * shape.layers * shape.hidden * shape.time;
  return perToken * shape.batch * shape.time;
}
