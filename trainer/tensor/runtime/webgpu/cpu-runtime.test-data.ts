import type { Graph, TypedArray } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, checkResident, refuseUnknownInputs } from '../binding.ts';
import type { CompileOptions, DeviceArray, DeviceMemory, Executable, Runtime, Tensors } from '../runtime.ts';
import { RuntimeError } from '../runtime-error.ts';
import { runOnCpu } from './cpu-steps.test-data.ts';
import { FLOAT32_PRODUCTS } from './device/device.ts';
import { accumulating, DeviceLearner, type LearningContext } from './learning.ts';
import { lowerToSteps } from './lowering/lowering.ts';
import { type DeviceValue, type Program, startOf, wholeOf } from './lowering/program.ts';

/** Elements that an array of JavaScript can have. */
const MAX_ARRAY = 2 ** 31;

/**
 * Runs the dispatches of the WebGPU runtime on the processor: gpu.js kernels in its `cpu` mode, and the reference of the
 * graph's operations in place of our shaders. Slow; it tests lowering and kernels on machines without a device.
 */
export class KernelCpuRuntime implements Runtime {
  readonly name = 'gpu.js cpu';
  readonly description = 'kernels of the WebGPU runtime on the processor';
  readonly memory: DeviceMemory;
  readonly #most: number;

  /** @param most elements of an array that a kernel may bind; larger arrays are cut into pieces, as on a device */
  constructor(most = Infinity) {
    this.#most = most;
    this.memory = {
      largestArray: MAX_ARRAY,
      allocate: async (_what, length) => new CpuArray(new Float32Array(length)),
      learner: state =>
        DeviceLearner.create(
          { ...place, most, lower: graph => lowerToSteps(graph, FLOAT32_PRODUCTS, most) },
          state,
        ),
    };
  }

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    return new KernelCpuExecutable(graph, options, this.#most);
  }

  async close(): Promise<void> {}
}

class CpuArray implements DeviceArray {
  readonly values: Float32Array;

  constructor(values: Float32Array) {
    this.values = values;
  }

  get length(): number {
    return this.values.length;
  }

  destroy(): void {}
}

/** Here the stores' arrays are the parameters themselves, so nothing is uploaded or downloaded. */
const place: Omit<LearningContext, 'most' | 'lower'> = {
  allocate: async (_what, length) => new CpuArray(new Float32Array(length)),
  parameter: async (store, name) => new CpuArray(store.array(name)),
  refresh() {},
  build: async (program, resident) => ({
    run: async (inputs, outputs) => run(program, inputs, outputs, residentValues(program, resident)),
  }),
  clear(arrays) {
    for (const array of arrays) (array as CpuArray).values.fill(0);
  },
  download: async () => {},
};

class KernelCpuExecutable implements Executable {
  readonly graph: Graph;
  readonly #program: Program;
  readonly #resident: ReadonlyMap<DeviceValue, Float32Array>;
  readonly #options: CompileOptions;
  readonly #outputs: Tensors;
  #disposed = false;

  constructor(graph: Graph, options: CompileOptions, most: number) {
    this.graph = graph;
    this.#options = options;
    bindParameters(graph, options);
    checkResident(graph, options);
    this.#outputs = bindOutputs(graph, options);
    const lowered = lowerToSteps(graph, FLOAT32_PRODUCTS, most);
    const { program, resident } = accumulating(lowered, options.sums ?? {}, most);
    this.#program = program;
    const arrays = new Map([...resident, ...Object.entries(options.resident ?? {})]);
    this.#resident = new Map([
      ...residentValues(program, arrays),
      ...[...program.parameters].map(([name, value]) => [value, options.parameters!.array(name)] as const),
    ]);
  }

  async run(inputs: Tensors): Promise<Tensors> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    refuseUnknownInputs(this.graph, inputs);
    for (const [name, tensor] of this.graph.inputs) {
      if (this.#options.resident?.[name] === undefined) checkInput(name, tensor, inputs[name]);
    }
    run(this.#program, inputs, this.#outputs, this.#resident);
    return this.#outputs;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
  }
}

function residentValues(
  program: Program,
  arrays: ReadonlyMap<string, DeviceArray>,
): ReadonlyMap<DeviceValue, Float32Array> {
  const named = [...program.inputs].filter(([name]) => arrays.has(name));
  return new Map(named.map(([name, value]) => [value, (arrays.get(name) as CpuArray).values]));
}

function run(
  program: Program,
  inputs: Tensors,
  outputs: Tensors,
  resident: ReadonlyMap<DeviceValue, Float32Array>,
): void {
  const arrays = new Map<DeviceValue, Float32Array>([...program.constants, ...resident]);
  for (const [name, value] of program.inputs) {
    if (!resident.has(value)) arrays.set(value, Float32Array.from(inputs[name]));
  }
  const arrayOf = (value: DeviceValue): Float32Array => {
    const whole = wholeOf(value);
    const array = arrays.get(whole) ?? new Float32Array(whole.length);
    arrays.set(whole, array);
    return value === whole ? array : array.subarray(startOf(value), startOf(value) + value.length);
  };
  for (const step of program.steps) runOnCpu(step, step.reads.map(arrayOf), step.writes.map(arrayOf));
  for (const [name, value] of program.outputs) (outputs[name] as TypedArray).set(arrayOf(value));
}
