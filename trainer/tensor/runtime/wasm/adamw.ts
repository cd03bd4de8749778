import type { AdamwFactors } from '../runtime.ts';
import { type Kernels, openKernels, PAGE_BYTES, roundUp } from './kernels.ts';

/** Elements in a chunk: its four arrays stay in the first- and second-level cache. */
const CHUNK = 4096;
const LANES = 4;
const FLOAT_BYTES = 4;
const CHUNK_BYTES = CHUNK * FLOAT_BYTES;
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
  for (let from = start; from < end; from += CHUNK) {
    const to = Math.min(from + CHUNK, end);
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
  const chunk = (place: number): Float32Array => new Float32Array(memory.buffer, place, CHUNK);
  const chunks = {
    weights: chunk(WEIGHTS),
    gradients: chunk(GRADIENTS),
    first: chunk(FIRST),
    second: chunk(SECOND),
  };
  cached = { kernels: openKernels(memory), chunks };
  return cached;
}
