import type { AdamwFactors } from '../optimizer-step.ts';
import { compileKernel, FunctionLocals, f32x4, forLoop, i32, type Local, PAGE_BYTES } from './code.ts';

/** Elements taken at once: the four arrays of a chunk stay in the first- and second-level cache. */
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

type Kernel = (bytes: number, ...factors: number[]) => void;

/**
 * One step of AdamW (Loshchilov & Hutter, 2019) on elements [start, end), in float32 as torch.optim.AdamW takes it: equal
 * input gives equal bits on every machine, however the range is cut.
 */
export function adamwKernel(
  { weights, gradients, first, second }: AdamwArrays,
  { scale, beta1, beta2, keep, stepSize, inverseRoot, epsilon }: AdamwFactors,
  start: number,
  end: number,
): void {
  const { run, chunks } = instance();
  const factors = [scale, beta1, 1 - beta1, beta2, 1 - beta2, keep, stepSize, inverseRoot, epsilon];
  for (let from = start; from < end; from += CHUNK) {
    const to = Math.min(from + CHUNK, end);
    const count = to - from;
    chunks.weights.set(weights.subarray(from, to));
    chunks.gradients.set(gradients.subarray(from, to));
    chunks.first.set(first.subarray(from, to));
    chunks.second.set(second.subarray(from, to));
    run(Math.ceil(count / LANES) * LANES * FLOAT_BYTES, ...factors);
    weights.set(chunks.weights.subarray(0, count), from);
    first.set(chunks.first.subarray(0, count), from);
    second.set(chunks.second.subarray(0, count), from);
  }
}

let cached: { readonly run: Kernel; readonly chunks: AdamwArrays } | undefined;

function instance(): NonNullable<typeof cached> {
  if (cached !== undefined) return cached;
  const memory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES });
  const run = compile(memory);
  const chunk = (place: number): Float32Array => new Float32Array(memory.buffer, place, CHUNK);
  const chunks = {
    weights: chunk(WEIGHTS),
    gradients: chunk(GRADIENTS),
    first: chunk(FIRST),
    second: chunk(SECOND),
  };
  cached = { run, chunks };
  return cached;
}

function compile(memory: WebAssembly.Memory): Kernel {
  const locals = new FunctionLocals(['i32', ...Array<'f32'>(9).fill('f32')]);
  const [bytes, ...factors] = locals.parameters;
  const index = locals.local('i32');
  const splats = locals.locals('v128', factors.length);
  const [scale, beta1, rest1, beta2, rest2, keep, stepSize, inverseRoot, epsilon] = splats;
  const [gradient, first, second] = locals.locals('v128', 3);
  const at = (place: number) => f32x4.load(index.get, place);
  const product = (a: Local, b: Local) => f32x4.mul(a.get, b.get);
  const denominator = f32x4.add(f32x4.mul(f32x4.sqrt(second.get), inverseRoot.get), epsilon.get);
  const step = f32x4.div(product(stepSize, first), denominator);
  const body = [
    ...factors.map((factor, i) => splats[i].set(f32x4.splat(factor.get))),
    forLoop(
      index,
      i32.const(0),
      bytes.get,
      i32.const(LANES * FLOAT_BYTES),
      gradient.set(f32x4.mul(at(GRADIENTS), scale.get)),
      first.set(f32x4.add(f32x4.mul(beta1.get, at(FIRST)), product(rest1, gradient))),
      second.set(
        f32x4.add(f32x4.mul(beta2.get, at(SECOND)), f32x4.mul(product(rest2, gradient), gradient.get)),
      ),
      f32x4.store(index.get, first.get, FIRST),
      f32x4.store(index.get, second.get, SECOND),
      f32x4.store(index.get, f32x4.sub(f32x4.mul(at(WEIGHTS), keep.get), step), WEIGHTS),
    ),
  ];
  return compileKernel(locals, body, memory);
}
