import type { Graph, TypedArray } from '../../graph/tensor.ts';
import { bindOutputs, bindParameters, checkInput, refuseUnknownInputs } from '../binding.ts';
import {
  type CompileOptions,
  type Executable,
  type Runtime,
  RuntimeError,
  type Tensors,
} from '../runtime.ts';
import { lowerToSteps } from './lowering.ts';
import type { Program } from './program.ts';
import type { Value } from './step.ts';

/**
 * The dispatches of the WebGPU runtime on the processor: gpu.js kernels in its `cpu` mode, our shaders as the operations they
 * stand for. Slow; it tests lowering and kernels on machines without a device.
 */
export class KernelCpuRuntime implements Runtime {
  readonly name = 'gpu.js cpu';
  readonly description = 'kernels of the WebGPU runtime on the processor';

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    return new KernelCpuExecutable(graph, options);
  }

  async close(): Promise<void> {}
}

class KernelCpuExecutable implements Executable {
  readonly graph: Graph;
  readonly #program: Program;
  readonly #parameters: ReadonlyMap<string, Float32Array>;
  readonly #outputs: Tensors;
  #disposed = false;

  constructor(graph: Graph, options: CompileOptions) {
    this.graph = graph;
    this.#parameters = bindParameters(graph, options);
    this.#outputs = bindOutputs(graph, options);
    this.#program = lowerToSteps(graph);
  }

  async run(inputs: Tensors): Promise<Tensors> {
    if (this.#disposed) throw new RuntimeError('the executable was disposed and cannot run');
    refuseUnknownInputs(this.graph, inputs);
    for (const [name, tensor] of this.graph.inputs) checkInput(name, tensor, inputs[name]);
    const program = this.#program;
    const arrays = new Map<Value, Float32Array>(program.constants);
    for (const [name, value] of program.inputs) arrays.set(value, Float32Array.from(inputs[name]));
    for (const [name, value] of program.parameters) arrays.set(value, this.#parameters.get(name)!);
    const arrayOf = (value: Value): Float32Array => {
      const array = arrays.get(value) ?? new Float32Array(value.length);
      arrays.set(value, array);
      return array;
    };
    for (const step of program.steps) step.runOnCpu(step.reads.map(arrayOf), step.writes.map(arrayOf));
    for (const [name, value] of program.outputs) (this.#outputs[name] as TypedArray).set(arrayOf(value));
    return this.#outputs;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
  }
}
