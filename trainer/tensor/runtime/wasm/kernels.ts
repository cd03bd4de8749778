import { readFileSync } from 'node:fs';
import type { AdamwFactors } from '../runtime.ts';

/** Bytes of a page of WebAssembly memory. */
export const PAGE_BYTES = 65_536;
/** Outputs of a panel: results need room for a multiple of it. */
export const PANEL_OUTPUTS = 8;
const LANES = 4;
const FLOAT_BYTES = 4;
/** Floats summed in float32; sums of more are taken in doubles. */
const CHUNK = 1024;

/** The functions of `kernels.c`; addresses are bytes from the start of the memory, multiples of 4. */
export interface Kernels {
  readonly product: NumberFunction;
  readonly norm: NumberFunction;
  /** gate ← gate · sigmoid(gate) · up over `count` floats, a multiple of four. */
  readonly gatedSilu: (gate: number, up: number, count: number) => void;
  readonly exponentials: NumberFunction;
  readonly adamw: NumberFunction;
  /** Attention of every row of the tick in one layer: see `generation/cache/kv-cache.ts`. */
  readonly attend: NumberFunction;
}

type NumberFunction = (...parameters: number[]) => void;

let compiled: WebAssembly.Module | undefined;

/** The kernels on a memory. `npm run kernels` compiles them. */
export function openKernels(memory: WebAssembly.Memory): Kernels {
  compiled ??= new WebAssembly.Module(readFileSync(new URL('./kernels.wasm', import.meta.url)));
  return new WebAssembly.Instance(compiled, { env: { memory } }).exports as unknown as Kernels;
}

export function roundUp(count: number, step: number): number {
  return Math.ceil(count / step) * step;
}

/** Floats a matrix of this size takes when packed. */
export function packedSize(outputs: number, inputs: number): number {
  return roundUp(outputs, PANEL_OUTPUTS) * inputs;
}

/**
 * Packs a weight [outputs, inputs] into panels of eight outputs, with the eight weights of one input adjacent; the last
 * panel is padded with 0.
 */
export function packMatrix(
  weight: Float32Array,
  outputs: number,
  inputs: number,
  packed: Float32Array,
): void {
  packed.fill(0);
  for (let output = 0; output < outputs; output++) {
    const panel = Math.floor(output / PANEL_OUTPUTS) * PANEL_OUTPUTS * inputs;
    const from = output * inputs;
    let to = panel + (output % PANEL_OUTPUTS);
    for (let input = 0; input < inputs; input++, to += PANEL_OUTPUTS) packed[to] = weight[from + input];
  }
}

/** Operands of a product; addresses and strides in bytes. */
export interface ProductOperands {
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  /** [rows, inputs] */
  readonly x: number;
  readonly xStride: number;
  /** From {@link packMatrix}. */
  readonly weight: number;
  /** One number per output, rounded up to {@link PANEL_OUTPUTS}. */
  readonly bias: number;
  readonly result: number;
  readonly resultStride: number;
  /** Adds to the result instead of overwriting it. */
  readonly accumulate: boolean;
}

/** x · weightᵀ + bias. Every result is one chain of multiply-adds over the inputs in order, for any number of rows. */
export function product({ product: run }: Kernels, operands: ProductOperands): void {
  const { rows, inputs, outputs, x, xStride, weight, bias, result, resultStride, accumulate } = operands;
  const panels = Math.ceil(outputs / PANEL_OUTPUTS);
  run(rows, inputs, panels, x, xStride, weight, bias, result, resultStride, Number(accumulate));
}

/** Rows to normalize; addresses and strides in bytes. */
export interface NormOperands {
  readonly rows: number;
  readonly x: number;
  readonly stride: number;
  /** Entries of a row. Rows and weight are padded with zeros to a multiple of four. */
  readonly width: number;
  readonly weight: number;
  readonly epsilon: number;
  /** May be `x`; of the same stride. */
  readonly result: number;
}

/** x / √(mean(x²) + ε) · weight, row by row. */
export function normalize({ norm }: Kernels, operands: NormOperands): void {
  const { rows, x, stride, width, weight, epsilon, result } = operands;
  norm(rows, x, stride, width, weight, result, 1 / width, epsilon);
}

/** Computes `x ← exp((x − largest) · scale)` in place and returns the sum. */
export type Exponentials = (x: number, count: number, largest: number, scale: number) => number;

/**
 * Weights of a softmax for entries of at most `largest`, four at a time; relative error 2e-7 near the largest, growing with
 * the exponent's size as float32 must (2e-6 at e⁻²⁰).
 * @param scratch address of four floats
 */
export function openExponentials(memory: WebAssembly.Memory, scratch: number): Exponentials {
  const { exponentials: run } = openKernels(memory);
  const sums = new Float32Array(memory.buffer, scratch, LANES);
  return (x, count, largest, scale) => {
    let total = 0;
    const stop = x + roundUp(count, LANES) * FLOAT_BYTES;
    for (let from = x; from < stop; from += CHUNK * FLOAT_BYTES) {
      run(from, Math.min(from + CHUNK * FLOAT_BYTES, stop), largest, scale * Math.LOG2E, scratch);
      total += sums[0] + sums[1] + (sums[2] + sums[3]);
    }
    return total;
  };
}

const CACHE_LINE_BYTES = 64;

/** Allocates places in a WebAssembly memory, each on a new cache line. */
export class MemoryPlan {
  #end = 0;

  /** First byte after all allocated places. */
  get end(): number {
    return this.#end;
  }

  /** Address of `words` 32-bit words. */
  place(words: number): number {
    const start = this.#end;
    this.#end += Math.ceil((words * FLOAT_BYTES) / CACHE_LINE_BYTES) * CACHE_LINE_BYTES;
    return start;
  }
}

/** Elements in a chunk: its four arrays stay in the first- and second-level cache. */
const ADAMW_CHUNK = 4096;
const CHUNK_BYTES = ADAMW_CHUNK * FLOAT_BYTES;
const PAGES = Math.ceil((4 * CHUNK_BYTES) / PAGE_BYTES);
const [WEIGHTS, GRADIENTS, FIRST, SECOND] = [0, 1, 2, 3].map(index => index * CHUNK_BYTES);

/** The arrays of a step; all but the gradients are updated in place. */
export interface AdamwArrays {
  readonly weights: Float32Array;
  readonly gradients: Float32Array;
  /** Running means of gradients and of their squares. */
  readonly first: Float32Array;
  readonly second: Float32Array;
}

/**
 * One step of AdamW (Loshchilov & Hutter, 2019) on elements [start, end), in float32 as in torch.optim.AdamW: equal
 * input gives equal bits on every machine, regardless of how the range is split.
 */
export function adamwKernel(
  { weights, gradients, first, second }: AdamwArrays,
  { scale, beta1, beta2, keep, stepSize, inverseRoot, epsilon }: AdamwFactors,
  start: number,
  end: number,
): void {
  const { kernels, chunks } = instance();
  const factors = [scale, beta1, 1 - beta1, beta2, 1 - beta2, keep, stepSize, inverseRoot, epsilon];
  for (let from = start; from < end; from += ADAMW_CHUNK) {
    const to = Math.min(from + ADAMW_CHUNK, end);
    const count = to - from;
    chunks.weights.set(weights.subarray(from, to));
    chunks.gradients.set(gradients.subarray(from, to));
    chunks.first.set(first.subarray(from, to));
    chunks.second.set(second.subarray(from, to));
    kernels.adamw(0, roundUp(count, LANES), ...factors);
    weights.set(chunks.weights.subarray(0, count), from);
    first.set(chunks.first.subarray(0, count), from);
    second.set(chunks.second.subarray(0, count), from);
  }
}

let cached: { readonly kernels: Kernels; readonly chunks: AdamwArrays } | undefined;

function instance(): NonNullable<typeof cached> {
  if (cached !== undefined) return cached;
  const memory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES });
  const chunk = (place: number): Float32Array => new Float32Array(memory.buffer, place, ADAMW_CHUNK);
  const chunks = {
    weights: chunk(WEIGHTS),
    gradients: chunk(GRADIENTS),
    first: chunk(FIRST),
    second: chunk(SECOND),
  };
  cached = { kernels: openKernels(memory), chunks };
  return cached;
}
