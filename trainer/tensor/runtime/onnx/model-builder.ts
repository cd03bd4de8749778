import { type Graph, sizeOf, type Tensor, type TypedArray } from '../../graph/tensor.ts';
import { LoweringContext } from '../lowering-context.ts';
import type { OnnxAttribute, OnnxInitializer, OnnxModel, OnnxNode, OnnxValue } from './model-proto.ts';

/** ONNX's own domain, and ONNX Runtime's contributed kernels. */
export const MICROSOFT = 'com.microsoft';

const OPSETS = { '': 23, [MICROSOFT]: 1 };

export interface EmitOptions {
  readonly domain?: string;
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

/** Collects the ONNX model while a graph is lowered: names of values, nodes, initializers. */
export class ModelBuilder extends LoweringContext<string> {
  /** Threads the model will run on. */
  readonly threads: number;
  readonly #nodes: OnnxNode[] = [];
  readonly #initializers: OnnxInitializer[] = [];
  readonly #initializerNames = new Map<string, string>();
  readonly #outputNames = new Map<Tensor, string>();
  #count = 0;

  constructor(graph: Graph, threads: number) {
    super(graph);
    this.threads = threads;
    for (const [name, tensor] of [...graph.inputs, ...graph.parameters]) this.bind(tensor, inputName(name));
    for (const [name, tensor] of graph.outputs) {
      if (!this.isLowered(tensor) && !this.#outputNames.has(tensor))
        this.#outputNames.set(tensor, outputName(name));
    }
  }

  /** True if the value is an output of the graph, so that it must exist separately. */
  isOutput(tensor: Tensor): boolean {
    return this.#outputNames.has(tensor);
  }

  /** Name under which the result of a tensor is to be emitted: a graph output's where it is one. */
  resultName(tensor: Tensor): string {
    return this.#outputNames.get(tensor) ?? this.freshName();
  }

  freshName(): string {
    return `t${this.#count++}`;
  }

  /** Adds a node of one result; its name is `result`, or a fresh one. */
  emit(
    opType: string,
    inputs: readonly string[],
    options: EmitOptions = {},
    result = this.freshName(),
  ): string {
    this.emitMany(opType, inputs, [result], options);
    return result;
  }

  emitMany(
    opType: string,
    inputs: readonly string[],
    outputs: readonly string[],
    options: EmitOptions = {},
  ): void {
    this.#nodes.push({
      opType,
      domain: options.domain ?? '',
      inputs,
      outputs,
      attributes: options.attributes ?? {},
    });
  }

  reshape(x: string, shape: readonly number[], result?: string): string {
    return this.emit('Reshape', [x, this.int64(shape)], {}, result);
  }

  /** Small integers for shapes, axes and the like. */
  int64(values: readonly number[]): string {
    const bytes = new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
    return this.#initializer('int64', [values.length], bytes);
  }

  float(value: number): string {
    return this.#initializer('float32', [], new Uint8Array(Float32Array.of(value).buffer));
  }

  constant(tensor: Tensor): string {
    const data = tensor.attributes.data as TypedArray;
    return this.#initializer(
      tensor.dtype,
      tensor.shape,
      new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
    );
  }

  floats(data: Float32Array, shape: readonly number[]): string {
    return this.#initializer('float32', shape, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }

  ints(values: ArrayLike<number>, shape: readonly number[]): string {
    return this.#initializer('int32', shape, new Uint8Array(Int32Array.from(values).buffer));
  }

  filled(shape: readonly number[], value: number): string {
    return this.floats(new Float32Array(sizeOf(shape)).fill(value), shape);
  }

  finish(): OnnxModel {
    const outputs: OnnxValue[] = [];
    for (const [name, tensor] of this.graph.outputs) {
      const result = outputName(name);
      if (this.valueOf(tensor) !== result) this.emit('Identity', [this.valueOf(tensor)], {}, result);
      outputs.push({ name: result, type: tensor.dtype, shape: tensor.shape });
    }
    const inputs = [...this.graph.inputs, ...this.graph.parameters].map(([name, tensor]) => ({
      name: inputName(name),
      type: tensor.dtype,
      shape: tensor.shape,
    }));
    return { nodes: this.#nodes, inputs, outputs, initializers: this.#initializers, opsets: OPSETS };
  }

  #initializer(type: OnnxInitializer['type'], shape: readonly number[], bytes: Uint8Array): string {
    const key = `${type} ${shape.join()} ${bytes.length <= 256 ? bytes.join() : this.#count}`;
    const known = this.#initializerNames.get(key);
    if (known !== undefined) return known;
    const name = `c${this.#count++}`;
    this.#initializers.push({ name, type, shape, bytes });
    this.#initializerNames.set(key, name);
    return name;
  }
}

export function inputName(name: string): string {
  return `in/${name}`;
}

export function outputName(name: string): string {
  return `out/${name}`;
}
