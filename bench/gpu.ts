/**
 * The GPU runtime's kernels at the shapes of a model, one by one: milliseconds, TFLOP/s and GB/s, and the share of what the
 * card can do at most.
 *
 *     npm run bench:gpu                                      Qwen2.5-0.5B, 4096 tokens (a GPU in software: tiny)
 *     npm run bench:gpu -- --shape tiny --precision float16  factors of products in float16, on tensor cores where there are
 *     npm run bench:gpu -- --tflops 67 --gigabytes 3350      limits of a card that is not known by name
 *
 * `--repeats` runs of a kernel are queued, 20 by default.
 * A kernel's result is added to an array on the device, so that nothing comes back; many runs are queued and the time until
 * the last one is done counts. Whole training steps and decoding: bench:compute.
 */

import { Random } from '../shared/random.ts';
import { GraphBuilder } from '../trainer/tensor/graph/graph.ts';
import { sizeOf } from '../trainer/tensor/graph/tensor.ts';
import {
  type DeviceArray,
  type Executable,
  PRECISIONS,
  type Tensors,
} from '../trainer/tensor/runtime/runtime.ts';
import { WebGpuRuntime } from '../trainer/tensor/runtime/webgpu/webgpu-runtime.ts';
import { limitsOf } from './compute/peaks.ts';
import { scriptFlags } from './flags.ts';
import { type BenchKernel, kernels, SHAPES } from './gpu/kernels.ts';

const NOTHING: Tensors = {};
/** Within this time of work a card raises its clock. */
const WARMING_MS = 250;

/** Runs kernels on a device many times without anything coming back. */
export class KernelBench {
  readonly #runtime: WebGpuRuntime;
  readonly #random = Random.fromSeed(0);
  #wait: Executable | null = null;

  constructor(runtime: WebGpuRuntime) {
    this.#runtime = runtime;
  }

  /** Milliseconds of one run, its result's addition to an array included. */
  async measure({ graph, name }: BenchKernel, repeats: number): Promise<number> {
    const { memory } = this.#runtime;
    const arrays: DeviceArray[] = [];
    const place = async (tensors: Iterable<readonly [string, { readonly shape: readonly number[] }]>) => {
      const placed: Record<string, DeviceArray> = {};
      for (const [tensor, { shape }] of tensors) {
        placed[tensor] = await memory.allocate(`${tensor} of ${name}`, sizeOf(shape));
        arrays.push(placed[tensor]);
      }
      return placed;
    };
    const [resident, sums] = [await place(graph.inputs), await place(graph.outputs)];
    // A card multiplies zeros faster than numbers.
    for (const [input, { shape }] of graph.inputs) await this.#fill(resident[input], shape);
    const executable = await this.#runtime.compile(graph, { resident, sums });
    const runs = async (count: number): Promise<number> => {
      const start = performance.now();
      for (let run = 0; run < count; run++) await executable.run(NOTHING);
      await this.#waitForAll();
      return performance.now() - start;
    };
    // A card that had nothing to do is slow at first.
    for (let warm = 0; warm < WARMING_MS; ) warm += await runs(repeats);
    const ms = (await runs(repeats)) / repeats;
    await executable.dispose();
    for (const array of arrays) array.destroy();
    return ms;
  }

  /** Adds the outer product of two random vectors, so that little has to be sent. */
  async #fill(array: DeviceArray, shape: readonly number[]): Promise<void> {
    const columns = shape.at(-1) ?? 1;
    const rows = sizeOf(shape) / columns;
    const g = new GraphBuilder();
    g.output('y', g.mul(g.input('left', 'float32', [rows, 1]), g.input('right', 'float32', [1, columns])));
    const executable = await this.#runtime.compile(g.build(), { sums: { y: array } });
    await executable.run({ left: this.#normal(rows), right: this.#normal(columns) });
    await executable.dispose();
  }

  readonly #normal = (length: number): Float32Array =>
    Float32Array.from({ length }, () => this.#random.normal());

  /** Until the device has done what it was asked: one number comes back after all else. */
  async #waitForAll(): Promise<void> {
    if (this.#wait === null) {
      const g = new GraphBuilder();
      g.output('y', g.add(g.input('x', 'float32', [1]), 1));
      this.#wait = await this.#runtime.compile(g.build());
    }
    await this.#wait.run({ x: new Float32Array(1) });
  }
}

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shape: { type: 'string' },
    precision: { type: 'string', default: 'float32' },
    repeats: { type: 'string', default: '20' },
    tflops: { type: 'string' },
    gigabytes: { type: 'string' },
  },
});
const precision = PRECISIONS.find(name => name === flags.precision);
if (precision === undefined) {
  throw new RangeError(`--precision ${flags.precision} is not known; choose ${PRECISIONS.join(', ')}`);
}
const repeats = positive('repeats', flags.repeats);
const runtime = await WebGpuRuntime.open(precision);
if (runtime === null) throw new Error('there is no GPU here that WebGPU can use: install its Vulkan driver');
const name = flags.shape ?? (runtime.software ? 'tiny' : 'qwen2.5-0.5b');
const shape = SHAPES[name];
if (shape === undefined) {
  throw new RangeError(`no shape is named ${name}; choose ${Object.keys(SHAPES).join(', ')}`);
}
const known = limitsOf(runtime.description);
const limits = {
  tflops: flags.tflops === undefined ? known?.tflops : positive('tflops', flags.tflops),
  gigabytes: flags.gigabytes === undefined ? known?.gigabytes : positive('gigabytes', flags.gigabytes),
};
console.log(runtime.description);
console.log(
  limits.tflops === undefined || limits.gigabytes === undefined
    ? 'No shares: this card is not known by name (give --tflops and --gigabytes).'
    : `Shares of ${limits.tflops} TFLOP/s and ${limits.gigabytes} GB/s, of the one that allows less.`,
);
console.log(
  `\n| ${name}, ${shape.tokens} tokens | ms | TFLOP/s | GB/s | share |\n| --- | --- | --- | --- | --- |`,
);
const bench = new KernelBench(runtime);
for (const kernel of kernels(shape)) {
  const ms = await bench.measure(kernel, repeats);
  const least = Math.max(
    kernel.operations / (limits.tflops ?? Number.NaN) / 1e9,
    kernel.bytes / (limits.gigabytes ?? Number.NaN) / 1e6,
  );
  const share = Number.isNaN(least) ? '' : `${((100 * least) / ms).toFixed(1)} %`;
  const [tflops, gigabytes] = [kernel.operations / ms / 1e9, kernel.bytes / ms / 1e6];
  console.log(
    `| ${kernel.name} | ${ms.toFixed(3)} | ${tflops.toFixed(3)} | ${gigabytes.toFixed(2)} | ${share} |`,
  );
}
await runtime.close();

function positive(flag: string, text: string): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new RangeError(`--${flag} must be a positive number, got ${text}`);
}
