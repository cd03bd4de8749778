import { InferenceSession, Tensor as OnnxTensor } from 'onnxruntime-node';
import {
  allocate,
  type DType,
  describe,
  type Graph,
  sizeOf,
  type Tensor,
  type TypedArray,
} from '../../graph/tensor.ts';
import {
  type CompileOptions,
  type Executable,
  type Runtime,
  RuntimeError,
  type Tensors,
} from '../runtime.ts';
import { lower } from './lowering.ts';
import { inputName, outputName } from './lowering-context.ts';
import { encodeModel } from './model-proto.ts';

export interface OnnxRuntimeOptions {
  /** Threads a run may use, the calling one included; 1 when absent. */
  readonly threads?: number;
  /** Writes a Chrome trace of every run, with this prefix, when the executable is disposed. */
  readonly profilePrefix?: string;
}

/** The CPU runtime: graphs as ONNX models in ONNX Runtime. */
export class OnnxRuntime implements Runtime {
  readonly name = 'onnx';
  readonly #options: OnnxRuntimeOptions;
  readonly #open = new Set<OnnxExecutable>();

  constructor(options: OnnxRuntimeOptions = {}) {
    this.#options = options;
  }

  async compile(graph: Graph, options: CompileOptions = {}): Promise<Executable> {
    const feeds = bindParameters(graph, options);
    const fetches = bindOutputs(graph, options);
    const { threads = 1, profilePrefix } = this.#options;
    const session = await InferenceSession.create(encodeModel(lower(graph, threads)), {
      intraOpNumThreads: threads,
      executionMode: 'sequential',
      extra: { session: { set_denormal_as_zero: '1' } },
      logSeverityLevel: 3,
      ...(profilePrefix === undefined ? {} : { enableProfiling: true, profileFilePrefix: profilePrefix }),
    });
    const executable = new OnnxExecutable(graph, session, feeds, fetches, () =>
      this.#open.delete(executable),
    );
    this.#open.add(executable);
    return executable;
  }

  async close(): Promise<void> {
    for (const executable of [...this.#open]) await executable.dispose();
  }
}

class OnnxExecutable implements Executable {
  readonly graph: Graph;
  readonly #session: InferenceSession;
  readonly #feeds: Record<string, OnnxTensor>;
  readonly #fetches: Record<string, OnnxTensor>;
  readonly #outputs: Tensors;
  readonly #onDispose: () => void;

  constructor(
    graph: Graph,
    session: InferenceSession,
    feeds: Record<string, OnnxTensor>,
    outputs: Tensors,
    onDispose: () => void,
  ) {
    this.graph = graph;
    this.#session = session;
    this.#feeds = feeds;
    this.#outputs = outputs;
    this.#fetches = {};
    for (const [name, tensor] of graph.outputs) this.#fetches[outputName(name)] = wrap(tensor, outputs[name]);
    this.#onDispose = onDispose;
  }

  async run(inputs: Tensors): Promise<Tensors> {
    for (const name of Object.keys(inputs)) {
      if (!this.graph.inputs.has(name)) {
        throw new RuntimeError(
          `the graph has no input '${name}'; it has ${[...this.graph.inputs.keys()].join(', ')}`,
        );
      }
    }
    for (const [name, tensor] of this.graph.inputs) {
      const array = inputs[name];
      const key = inputName(name);
      if (this.#feeds[key]?.data === array && array !== undefined) continue;
      check('input', name, tensor, array);
      this.#feeds[key] = wrap(tensor, array);
    }
    await this.#session.run(this.#feeds, this.#fetches);
    return this.#outputs;
  }

  async dispose(): Promise<void> {
    this.#onDispose();
    await this.#session.release();
  }
}

function bindParameters(graph: Graph, { parameters }: CompileOptions): Record<string, OnnxTensor> {
  const feeds: Record<string, OnnxTensor> = {};
  for (const [name, tensor] of graph.parameters) {
    if (parameters === undefined)
      throw new RuntimeError(`the graph has parameters ('${name}', …): give a ParameterStore`);
    feeds[inputName(name)] = wrap(tensor, parameters.array(name, tensor.shape));
  }
  return feeds;
}

function bindOutputs(graph: Graph, { outputs = {} }: CompileOptions): Tensors {
  for (const name of Object.keys(outputs)) {
    if (!graph.outputs.has(name)) {
      throw new RuntimeError(
        `the graph has no output '${name}'; it has ${[...graph.outputs.keys()].join(', ')}`,
      );
    }
  }
  const bound: Record<string, TypedArray> = {};
  for (const [name, tensor] of graph.outputs) {
    const array = outputs[name] ?? allocate(tensor.dtype, sizeOf(tensor.shape));
    check('output', name, tensor, array);
    bound[name] = array;
  }
  return bound;
}

const ARRAY_TYPES: Readonly<Record<DType, new (length: number) => TypedArray>> = {
  float32: Float32Array,
  int32: Int32Array,
  bool: Uint8Array,
};

function check(role: string, name: string, tensor: Tensor, array: TypedArray | undefined): void {
  const wanted = ARRAY_TYPES[tensor.dtype];
  const length = sizeOf(tensor.shape);
  if (array instanceof wanted && array.length === length) return;
  const given = array === undefined ? 'nothing' : `${array.constructor.name} of ${array.length}`;
  throw new RuntimeError(
    `${role} '${name}' is ${describe(tensor)} and takes a ${wanted.name} of ${length} elements, got ${given}`,
  );
}

function wrap(tensor: Tensor, array: TypedArray): OnnxTensor {
  if (array instanceof Float32Array) return new OnnxTensor('float32', array, tensor.shape);
  if (array instanceof Int32Array) return new OnnxTensor('int32', array, tensor.shape);
  return new OnnxTensor('bool', array, tensor.shape);
}
