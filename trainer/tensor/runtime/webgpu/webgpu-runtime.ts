import type { Graph } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, checkResident, refuseUnknownInputs } from '../binding.ts';
import type { ParameterSource, ParameterStore } from '../parameter-store.ts';
import type {
  CompileOptions,
  DeviceArray,
  DeviceMemory,
  Executable,
  Learner,
  LearnerState,
  Precision,
  Runtime,
  Tensors,
} from '../runtime.ts';
import { RuntimeError } from '../runtime-error.ts';
import { BufferPool, CompiledProgram, type ProgramContext } from './compiled-program.ts';
import { type DeviceOptions, describeProducts, GpuDevice } from './device/device.ts';
import { type DeviceParameters, download, GpuArray, ResidentParameters } from './device/gpu-array.ts';
import { accumulating, DeviceLearner, type LearningContext } from './learning.ts';
import { lowerToSteps } from './lowering/lowering.ts';
import type { DeviceValue } from './lowering/program.ts';

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
    const most = Math.floor(device.largestBinding / FLOAT_BYTES);
    const place: LearningContext = {
      most,
      lower: graph => lowerToSteps(graph, device.products, most),
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

/** State that an executable takes from its runtime. */
interface WebGpuOwner extends ProgramContext {
  /** Null for a graph without parameters. */
  readonly parameters: DeviceParameters | null;
  onDispose(): void;
}

/** A graph on the device. */
class WebGpuExecutable implements Executable {
  readonly graph: Graph;
  readonly #owner: WebGpuOwner;
  readonly #program: CompiledProgram;
  readonly #resident: CompileOptions['resident'];
  readonly #outputs: Tensors;
  #disposed = false;

  private constructor(
    graph: Graph,
    options: CompileOptions,
    owner: WebGpuOwner,
    outputs: Tensors,
    program: CompiledProgram,
  ) {
    this.graph = graph;
    this.#resident = options.resident;
    this.#owner = owner;
    this.#outputs = outputs;
    this.#program = program;
  }

  static async compile(graph: Graph, options: CompileOptions, owner: WebGpuOwner): Promise<WebGpuExecutable> {
    bindParameters(graph, options);
    checkResident(graph, options);
    const outputs = bindOutputs(graph, options);
    const { products, largestBinding } = owner.device;
    const most = Math.floor(largestBinding / FLOAT_BYTES);
    const { program, resident } = accumulating(lowerToSteps(graph, products, most), options.sums ?? {}, most);
    const buffers = new Map<DeviceValue, GPUBuffer>();
    for (const [name, array] of [...resident, ...Object.entries(options.resident ?? {})]) {
      if (!(array instanceof GpuArray)) throw new RuntimeError(`the array '${name}' is not on this device`);
      buffers.set(program.inputs.get(name)!, array.buffer);
    }
    for (const [name, value] of program.parameters) {
      buffers.set(value, await owner.parameters!.buffer(name));
    }
    const compiled = await CompiledProgram.build(program, owner, buffers);
    return new WebGpuExecutable(graph, options, owner, outputs, compiled);
  }

  async run(inputs: Tensors): Promise<Tensors> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    refuseUnknownInputs(this.graph, inputs);
    for (const [name, tensor] of this.graph.inputs) {
      if (this.#resident?.[name] === undefined) checkInput(name, tensor, inputs[name]);
    }
    this.#owner.parameters?.refresh();
    await this.#program.run(inputs, this.#outputs);
    return this.#outputs;
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#owner.onDispose();
    this.#program.dispose();
  }
}
