import type { Graph } from '../../graph/tensor.ts';
import type { ParameterSource, ParameterStore } from '../parameter-store.ts';
import type { CompileOptions, Executable, Runtime } from '../runtime.ts';
import { GpuDevice } from './device.ts';
import { type DeviceParameters, ResidentParameters } from './resident.ts';
import { WebGpuExecutable } from './webgpu-executable.ts';

/**
 * The GPU runtime: graphs as compute dispatches on Dawn. Kernels are typed functions that gpu.js compiles to WGSL; matrix
 * products, attention and the moving of elements are WGSL of our own. Parameters stay on the device.
 */
export class WebGpuRuntime implements Runtime {
  readonly name = 'webgpu';
  readonly #device: GpuDevice;
  readonly #open = new Set<WebGpuExecutable>();
  readonly #resident = new Map<ParameterStore, ResidentParameters>();

  private constructor(device: GpuDevice) {
    this.#device = device;
  }

  /** @returns null where there is no GPU that Dawn can use */
  static async open(): Promise<WebGpuRuntime | null> {
    const device = await GpuDevice.open();
    return device === null ? null : new WebGpuRuntime(device);
  }

  get description(): string {
    return `WebGPU (${this.#device.description})`;
  }

  /** Whether a processor plays the GPU. */
  get software(): boolean {
    return this.#device.software;
  }

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    this.#device.check();
    const executable: WebGpuExecutable = await WebGpuExecutable.compile(graph, options, {
      device: this.#device,
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
}
