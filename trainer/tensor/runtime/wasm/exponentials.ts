import { compileKernel, FunctionLocals, f32x4, forLoop, i32 } from './code.ts';
import { powerOfTwo } from './vector-math.ts';

const LANES = 4;
const VECTOR_BYTES = 16;
/** Floats summed in float32; sums of more are taken in doubles. */
const CHUNK = 1024;
const CHUNK_BYTES = CHUNK * 4;

/** `run(x, count, largest, scale)`: x ← exp((x − largest) · scale) in place; gives the sum. */
export type Exponentials = (x: number, count: number, largest: number, scale: number) => number;

/**
 * Weights of a softmax for entries of at most `largest`, four at a time; relative error 2e-7 near the largest, growing with
 * the exponent's size as float32 must (2e-6 at e⁻²⁰).
 * @param scratch address of four floats
 */
export function compileExponentials(memory: WebAssembly.Memory, scratch: number): Exponentials {
  const locals = new FunctionLocals(['i32', 'i32', 'f32', 'f32']);
  const [start, end, largest, scale] = locals.parameters;
  const at = locals.local('i32');
  const [power, shifted, sum] = locals.locals('v128', 3);
  const exponent = f32x4.mul(f32x4.sub(f32x4.load(at.get), f32x4.splat(largest.get)), f32x4.splat(scale.get));
  const body = [
    sum.set(f32x4.constant(0)),
    forLoop(
      at,
      start.get,
      end.get,
      i32.const(VECTOR_BYTES),
      ...powerOfTwo(power, shifted, exponent),
      f32x4.store(at.get, power.get),
      sum.set(f32x4.add(sum.get, power.get)),
    ),
    f32x4.store(i32.const(scratch), sum.get),
  ];
  const run = compileKernel(locals, body, memory);
  const sums = new Float32Array(memory.buffer, scratch, LANES);
  return (x, count, top, factor) => {
    let total = 0;
    const stop = x + Math.ceil(count / LANES) * VECTOR_BYTES;
    for (let from = x; from < stop; from += CHUNK_BYTES) {
      run(from, Math.min(from + CHUNK_BYTES, stop), top, factor * Math.LOG2E);
      total += sums[0] + sums[1] + (sums[2] + sums[3]);
    }
    return total;
  };
}
