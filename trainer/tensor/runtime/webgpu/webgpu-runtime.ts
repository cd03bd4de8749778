import type { Graph } from '../../graph/tensor.ts';
import type { Precision } from '../choice.ts';
import type { ParameterSource, ParameterStore } from '../parameter-store.ts';
import type {
  CompileOptions,
  DeviceArray,
  DeviceMemory,
  Executable,
  Learner,
  LearnerState,
  Runtime,
} from '../runtime.ts';
import { RuntimeError } from '../runtime-error.ts';
import { CompiledProgram } from './compiled-program.ts';
import { BufferPool } from './device/buffer-pool.ts';
import { type DeviceOptions, GpuDevice } from './device/device.ts';
import { download, GpuArray } from './device/gpu-array.ts';
import { describeProducts } from './device/precision.ts';
import { type DeviceParameters, ResidentParameters } from './device/resident.ts';
import { DeviceLearner, type LearningContext } from './learning.ts';
import { WebGpuExecutable } from './webgpu-executable.ts';

const FLOAT_BYTES = 4;

/**
 * The GPU runtime: graphs as compute dispatches on Dawn. gpu.js compiles typed functions to WGSL for most kernels;
 * matrix products, attention and copies are hand-written WGSL. Parameters stay on the device.
 */
export class WebGpuRuntime implements Runtime {
  readonly name = 'webgpu';
  readonly memory: DeviceMemory;
  readonly #device: GpuDevice;
  readonly #pool: BufferPool;
  readonly #open = new Set<WebGpuExecutable>();
  readonly #resident = new Map<ParameterStore, ResidentParameters>();

  /** @param device owned by the runtime from now on; {@link open} finds one */
  constructor(device: GpuDevice) {
    this.#device = device;
    this.#pool = new BufferPool(device);
    this.memory = {
      largestArray: Math.floor(device.largestBinding / FLOAT_BYTES),
      allocate: async (what, length) => {
        device.assertBindable(what, length * FLOAT_BYTES);
        return GpuArray.allocate(device, what, length, 'the cache');
      },
      learner: state => this.#learner(state),
    };
  }

  /**
   * @param precision of the factors of products, where the GPU offers it; all else is float32
   * @returns null where there is no GPU that Dawn can use
   */
  static async open(
    precision: Precision = 'float32',
    options: DeviceOptions = {},
  ): Promise<WebGpuRuntime | null> {
    const device = await GpuDevice.open(precision, options);
    return device === null ? null : new WebGpuRuntime(device);
  }

  get description(): string {
    return `WebGPU (${this.#device.description})`;
  }

  /** Readable name of the method of matrix multiplication. */
  get products(): string {
    return describeProducts(this.#device.products);
  }

  /** Type of the factors of products. */
  get precision(): Precision {
    return this.#device.products.kind === 'float32' ? 'float32' : 'float16';
  }

  /** True if the GPU is a software renderer. */
  get software(): boolean {
    return this.#device.software;
  }

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    this.#device.check();
    const executable: WebGpuExecutable = await WebGpuExecutable.compile(graph, options, {
      device: this.#device,
      pool: this.#pool,
      parameters: options.parameters === undefined ? null : this.#parametersOf(options.parameters),
      onDispose: () => this.#open.delete(executable),
    });
    this.#open.add(executable);
    return executable;
  }

  async close(): Promise<void> {
    for (const executable of [...this.#open]) await executable.dispose();
    for (const parameters of this.#resident.values()) parameters.close();
    this.#device.close();
  }

  #parametersOf(source: ParameterSource): DeviceParameters {
    const residents = new Map(source.stores.map(store => [store, this.#residentOf(store)]));
    return {
      buffer: name => residents.get(source.storeOf(name))!.buffer(name),
      refresh() {
        for (const resident of residents.values()) resident.refresh();
      },
    };
  }

  #residentOf(store: ParameterStore): ResidentParameters {
    const known = this.#resident.get(store) ?? new ResidentParameters(this.#device, store);
    this.#resident.set(store, known);
    return known;
  }

  async #learner(state: LearnerState): Promise<Learner> {
    const device = this.#device;
    const stores = [state.weights, state.first, state.second].map(store => this.#residentOf(store));
    const place: LearningContext = {
      most: Math.floor(device.largestBinding / FLOAT_BYTES),
      allocate: (what, length) => GpuArray.allocate(device, what, length, 'gradients'),
      parameter: async (store, name) => new GpuArray(await this.#residentOf(store).buffer(name)),
      refresh() {
        for (const store of stores) store.refresh();
      },
      build: (program, resident) => {
        const buffers = [...program.inputs].flatMap(([name, value]) => {
          const array = resident.get(name);
          return array === undefined ? [] : [[value, onGpu(array).buffer] as const];
        });
        return CompiledProgram.build(program, { device, pool: this.#pool }, new Map(buffers));
      },
      clear(arrays) {
        for (const array of arrays) onGpu(array).clear(device);
      },
      download: copies =>
        download(
          device,
          copies.map(({ from, to }) => ({ from: onGpu(from), to })),
        ),
    };
    return DeviceLearner.create(place, state);
  }
}

/** @throws RuntimeError when the array lies elsewhere */
function onGpu(array: DeviceArray): GpuArray {
  if (array instanceof GpuArray) return array;
  throw new RuntimeError('the array does not lie on this GPU');
}
