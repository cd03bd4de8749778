import { GraphBuilder } from '../../trainer/tensor/graph/graph.ts';
import { openRuntime } from '../../trainer/tensor/runtime/open-runtime.ts';
import { ParameterStore } from '../../trainer/tensor/runtime/parameter-store.ts';
import type { Precision, RuntimeKind } from '../../trainer/tensor/runtime/runtime.ts';

/** Extents of the square matrices that a runtime is likely to be good at. */
export const PEAK_EXTENTS: Readonly<Record<RuntimeKind, number>> = { onnx: 1024, webgpu: 4096 };
const PEAK_REPEATS = 10;
const COPY_FLOATS = 2 ** 25;
const COPY_REPEATS = 5;
const FLOAT_BYTES = 4;

/** GFLOP/s of a large product of square matrices: what a training step is compared with. */
export async function matrixPeak(kind: RuntimeKind, threads: number, precision: Precision): Promise<number> {
  const extent = PEAK_EXTENTS[kind];
  const runtime = await openRuntime(kind, threads, precision);
  const g = new GraphBuilder();
  const extents = [extent, extent];
  const parameters = new ParameterStore(['a', 'b'].map(name => ({ name, shape: extents })));
  parameters.flat.fill(0.5);
  const product = g.matmul(g.parameter('a', extents), g.parameter('b', extents));
  // Parameters stay on the device and one entry comes back, so that its way to the processor does not count.
  g.output('entry', g.slice(g.slice(product, 0, 0, 1), 1, 0, 1));
  const executable = await runtime.compile(g.build(), { parameters });
  let best = Number.POSITIVE_INFINITY;
  for (let repeat = 0; repeat < PEAK_REPEATS; repeat++) {
    const start = performance.now();
    await executable.run({});
    best = Math.min(best, performance.now() - start);
  }
  await runtime.close();
  return (2 * extent ** 3) / best / 1e6;
}

/** GB/s that one thread reads and writes while it copies 128 MiB: what decoding of a large model is compared with. */
export function copyBandwidth(): number {
  const [from, to] = [new Float32Array(COPY_FLOATS).fill(1), new Float32Array(COPY_FLOATS)];
  let best = Number.POSITIVE_INFINITY;
  for (let repeat = 0; repeat < COPY_REPEATS; repeat++) {
    const start = performance.now();
    to.set(from);
    best = Math.min(best, performance.now() - start);
  }
  return (2 * FLOAT_BYTES * COPY_FLOATS) / best / 1e6;
}

/** Peak figures of a card. */
export interface Limits {
  readonly tflops: number;
  readonly gigabytes: number;
}

/** By NVIDIA's data sheets, SXM forms: TFLOP/s in float32 and dense in float16 on tensor cores, GB/s of memory. */
const CARDS: readonly {
  readonly name: RegExp;
  readonly plain: number;
  readonly tensor: number;
  readonly gigabytes: number;
}[] = [
  { name: /h100/i, plain: 67, tensor: 989, gigabytes: 3350 },
  { name: /h200/i, plain: 67, tensor: 989, gigabytes: 4800 },
  { name: /a100/i, plain: 19.5, tensor: 312, gigabytes: 2039 },
];

/**
 * @param description a runtime's, which names the card and how it multiplies
 * @returns undefined for a card that is not known by name
 */
export function limitsOf(description: string): Limits | undefined {
  const card = CARDS.find(({ name }) => name.test(description));
  if (card === undefined) return undefined;
  return {
    tflops: description.includes('; tensor cores') ? card.tensor : card.plain,
    gigabytes: card.gigabytes,
  };
}
