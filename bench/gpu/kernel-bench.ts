import { Random } from '../../shared/random.ts';
import { GraphBuilder } from '../../trainer/tensor/graph/graph.ts';
import { sizeOf } from '../../trainer/tensor/graph/tensor.ts';
import type { DeviceArray, Executable, Tensors } from '../../trainer/tensor/runtime/runtime.ts';
import type { WebGpuRuntime } from '../../trainer/tensor/runtime/webgpu/webgpu-runtime.ts';
import type { BenchKernel } from './kernels.ts';

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
