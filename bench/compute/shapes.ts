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
  /** Measurements a round. */
  readonly steps: number;
  /** Measured only when it is asked for by name: it takes minutes and gigabytes. */
  readonly large: boolean;
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
    steps: 5,
    large: false,
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
    steps: 5,
    large: false,
  },
  {
    name: '0.1B',
    hidden: 768,
    layers: 12,
    heads: 12,
    keyValueHeads: 4,
    feedForward: 2048,
    vocabulary: 32_000,
    batch: 4,
    time: 128,
    prompt: 32,
    generated: 32,
    steps: 1,
    large: true,
  },
  {
    name: '0.5B',
    hidden: 896,
    layers: 24,
    heads: 14,
    keyValueHeads: 2,
    feedForward: 4864,
    vocabulary: 151_936,
    batch: 4,
    time: 128,
    prompt: 32,
    generated: 16,
    steps: 1,
    large: true,
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
    // A training sequence is a token longer than what is predicted of it.
    maxPositions: Math.max(512, shape.time + 1, shape.prompt + shape.generated),
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

/** Bytes that a decode of a batch has to read at least: all weights for every token, and the cache of every sequence. */
export function decodingBytes(shape: Shape, weights: number, bytesOfNumber: number): number {
  const positions = shape.prompt + shape.generated / 2;
  const width = (shape.hidden / shape.heads) * shape.keyValueHeads;
  const cache = 2 * shape.layers * width * positions * shape.batch;
  return bytesOfNumber * shape.generated * (weights + cache);
}

/** @throws RangeError naming those there are */
export function shapeNamed(name: string): Shape {
  const shape = SHAPES.find(each => each.name === name);
  if (shape !== undefined) return shape;
  throw new RangeError(`no shape is named ${name}; choose ${SHAPES.map(each => each.name).join(', ')}`);
}
