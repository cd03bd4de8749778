import { crc32 } from 'node:zlib';
import { Random } from '../../../shared/random.ts';
import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';

/** Linear layers of every decoder layer that can have an adapter; each family has some of them. */
export const LORA_MODULES = [
  'q_proj',
  'k_proj',
  'v_proj',
  'o_proj',
  'gate_proj',
  'up_proj',
  'down_proj',
  'qkv_proj',
  'gate_up_proj',
] as const;
export type LoraModule = (typeof LORA_MODULES)[number];

/**
 * Low-rank adapters (LoRA; Hu et al., 2021) on linear layers: y = x·Wᵀ + scale · (x·Aᵀ)·Bᵀ with A [rank, in] and
 * B [out, rank].
 */
export interface LoraConfig {
  readonly rank: number;
  readonly alpha: number;
  /** The scale is alpha / √rank (rsLoRA; Kalajdzievski, 2023) instead of alpha / rank. */
  readonly rankStabilized: boolean;
  /** Learns the norms of the rows separately from their directions (DoRA), see `dora.ts`. */
  readonly dora: boolean;
  readonly modules: readonly LoraModule[];
}

/** Factor on what an adapter adds. */
export function loraScale({ rank, alpha, rankStabilized }: LoraConfig): number {
  return alpha / (rankStabilized ? Math.sqrt(rank) : rank);
}

/** PEFT's names of the two matrices of a linear layer's adapter. */
export function loraNames(linear: string): { readonly a: string; readonly b: string } {
  return { a: `${linear}.lora_A.weight`, b: `${linear}.lora_B.weight` };
}

/** PEFT's name of the norms [out] that DoRA learns for a linear layer. */
export function magnitudeName(linear: string): string {
  return `${linear}.lora_magnitude_vector`;
}

/** True if a linear layer, such as `model.layers.0.mlp.up_proj`, has an adapter. Experts have none, as in PEFT. */
export function hasAdapter(lora: LoraConfig | undefined, linear: string): lora is LoraConfig {
  const module = linear.slice(linear.lastIndexOf('.') + 1);
  if (lora === undefined || linear.includes('.experts.')) return false;
  return (lora.modules as readonly string[]).includes(module);
}

/** W + scale · B·A of a linear layer [outputs, inputs], in a new array. */
export function mergedWeight(
  weight: Float32Array,
  { a, b, rank, scale }: { a: Float32Array; b: Float32Array; rank: number; scale: number },
): Float32Array {
  const outputs = b.length / rank;
  const inputs = a.length / rank;
  const merged = new Float32Array(weight.length);
  const row = new Float64Array(inputs);
  for (let output = 0; output < outputs; output++) {
    row.fill(0);
    for (let r = 0; r < rank; r++) {
      const factor = scale * b[output * rank + r];
      for (let input = 0; input < inputs; input++) row[input] += factor * a[r * inputs + input];
    }
    const start = output * inputs;
    for (let input = 0; input < inputs; input++) merged[start + input] = weight[start + input] + row[input];
  }
  return merged;
}

/**
 * Dropout of the adapters' inputs during learning. The graph computes masks from two numbers of each row, which are an
 * input, and two of each column, which follow from the layer's name. All are whole numbers that float32 represents
 * exactly, so every runtime computes the same mask, and recomputes it in the backward pass if needed.
 */

/** Masks are numbers modulo this prime, so a probability is a multiple of 1 / 509. */
const PRIME = 509;
/** A lower probability gives no dropout. */
export const LEAST_DROPOUT = 1 / PRIME;
/** Numbers for each row. */
const ROW_NUMBERS = 2;

/** Dropout of a training batch. */
export interface AdapterDropout {
  /** Share of elements that become 0; the others are scaled up. */
  readonly probability: number;
  /** Numbers of the rows, float32 [tokens, 2]: the first 1 to 508, the second 0 to 508. */
  readonly rows: Tensor;
}

/** Declares the numbers of `tokens` rows as the input `dropoutRows`. */
export function declareDropout(g: GraphBuilder, probability: number, tokens: number): AdapterDropout {
  return { probability, rows: g.input('dropoutRows', 'float32', [tokens, ROW_NUMBERS]) };
}

/** Draws the numbers of all rows. Equal parts of a seed draw equal numbers. */
export function fillDropoutRows(rows: Float32Array | Int32Array, ...seed: readonly number[]): void {
  const rng = Random.fromSeed(crc32(seed.join()));
  for (let i = 0; i < rows.length; i += ROW_NUMBERS) {
    rows[i] = 1 + rng.integer(PRIME - 1);
    rows[i + 1] = rng.integer(PRIME);
  }
}

/**
 * An adapter's input after dropout.
 * @param x [n, inputs] with n at most the number of tokens
 */
export function dropOut(
  g: GraphBuilder,
  { probability, rows }: AdapterDropout,
  x: Tensor,
  linear: string,
): Tensor {
  const [count, inputs] = x.shape;
  const dropped = Math.round(probability * PRIME);
  const number = (index: number) => g.slice(g.slice(rows, 0, 0, count), 1, index, index + 1);
  const columns = columnNumbers(linear, inputs);
  const column = (index: number) => g.constant(columns[index], [1, inputs]);
  const mixed = modulo(g, g.mul(number(0), column(0)));
  const mask = modulo(g, g.add(g.mul(mixed, g.add(mixed, column(1))), number(1)));
  return g.mul(x, g.where(g.less(mask, dropped - 0.5), g.constant(0), PRIME / (PRIME - dropped)));
}

/**
 * Remainder of whole numbers from 0 to 2²⁰. Adding a half keeps quotients away from whole numbers, where rounding could
 * cross one.
 */
function modulo(g: GraphBuilder, x: Tensor): Tensor {
  const quotients = g.cast(g.cast(g.mul(g.add(x, 0.5), 1 / PRIME), 'int32'), 'float32');
  return g.sub(x, g.mul(quotients, PRIME));
}

/** Two numbers of each column, by a linear congruential generator (Numerical Recipes) from the layer's name. */
function columnNumbers(linear: string, inputs: number): readonly [Float32Array, Float32Array] {
  const [first, second] = [new Float32Array(inputs), new Float32Array(inputs)];
  let state = crc32(linear);
  const next = (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % below;
  };
  for (let i = 0; i < inputs; i++) {
    first[i] = 1 + next(PRIME - 1);
    second[i] = next(PRIME);
  }
  return [first, second];
}
