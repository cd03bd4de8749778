import type { Graph } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, checkResident, refuseUnknownInputs } from '../binding.ts';
import type { CompileOptions, Executable, Tensors } from '../runtime.ts';
import { RuntimeError } from '../runtime-error.ts';
import { CompiledProgram, type ProgramContext } from './compiled-program.ts';
import { GpuArray } from './device/gpu-array.ts';
import type { DeviceParameters } from './device/resident.ts';
import { accumulating } from './learning.ts';
import { lowerToSteps } from './lowering/lowering.ts';
import type { DeviceValue } from './lowering/step.ts';

const FLOAT_BYTES = 4;

/** State that an executable takes from its runtime. */
export interface WebGpuOwner extends ProgramContext {
  /** Null for a graph without parameters. */
  readonly parameters: DeviceParameters | null;
  onDispose(): void;
}

/** A graph on the device. */
export class WebGpuExecutable implements Executable {
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
