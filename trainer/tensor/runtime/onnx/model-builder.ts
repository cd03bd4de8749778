import { readFileSync } from 'node:fs';
import protobuf from 'protobufjs';
import { type Graph, sizeOf, type Tensor, type TypedArray } from '../../graph/tensor.ts';
import { LoweringContext } from '../lowering-context.ts';

/** ONNX's own domain, and ONNX Runtime's contributed kernels. */
export const MICROSOFT = 'com.microsoft';

/** Operator set version by domain; the empty domain is ONNX itself. */
const OPSETS = [
  { domain: '', version: 23 },
  { domain: MICROSOFT, version: 1 },
];
const IR_VERSION = 10;

export interface EmitOptions {
  readonly domain?: string;
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

export interface ModelOptions {
  /** Threads the model will run on: some kernels give the same sums only on one. */
  readonly threads: number;
  /** True if axis 0 of inputs and outputs may have any extent at a run. */
  readonly anyRows?: boolean;
  /** Parameters that the model holds itself, by name; others are inputs. */
  readonly constants?: ReadonlyMap<string, TypedArray>;
}

/** The extent of rows, in models that take any number of them. */
const ROWS = 'rows';

/** Collects the ONNX model while a graph is lowered: names of values, nodes, initializers. */
export class ModelBuilder extends LoweringContext<string> {
  readonly threads: number;
  readonly #anyRows: boolean;
  readonly #constants: ReadonlyMap<string, TypedArray>;
  /** Messages of {@link modelType}. */
  readonly #nodes: { readonly opType: string; readonly attribute: readonly object[] }[] = [];
  readonly #initializers: object[] = [];
  readonly #initializerNames = new Map<string, string>();
  readonly #outputNames = new Map<Tensor, string>();
  readonly #shared = new Map<string, string>();
  #count = 0;

  constructor(graph: Graph, { threads, anyRows = false, constants = new Map() }: ModelOptions) {
    super(graph);
    this.threads = threads;
    this.#anyRows = anyRows;
    this.#constants = constants;
    for (const [name, tensor] of [...graph.inputs, ...graph.parameters]) {
      const data = constants.get(name);
      this.bind(tensor, data === undefined ? inputName(name) : this.#data(tensor, data));
    }
    for (const [name, tensor] of graph.outputs) {
      if (!this.isLowered(tensor) && !this.#outputNames.has(tensor))
        this.#outputNames.set(tensor, outputName(name));
    }
  }

  /** True if the value is an output of the graph, so it must exist separately. */
  isOutput(tensor: Tensor): boolean {
    return this.#outputNames.has(tensor);
  }

  /** True if the model holds the parameter itself. */
  isConstant(tensor: Tensor): boolean {
    return tensor.operation === 'parameter' && this.#constants.has(tensor.attributes.name as string);
  }

  /** Name for a tensor's result: that of the graph output, if it is one. */
  resultName(tensor: Tensor): string {
    return this.#outputNames.get(tensor) ?? this.freshName();
  }

  freshName(): string {
    return `t${this.#count++}`;
  }

  /** Adds a node with one result; its name is `result`, or a fresh one. */
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
    input: readonly string[],
    output: readonly string[],
    options: EmitOptions = {},
  ): void {
    const { domain = '', attributes = {} } = options;
    this.#nodes.push({
      ...{ name: `${opType}_${this.#nodes.length}`, opType, domain, input, output },
      attribute: Object.entries(attributes).map(([name, value]) => ({ name, ...encodeAttribute(value) })),
    });
  }

  /** A value that several nodes need, made once. */
  shared(key: string, make: () => string): string {
    const known = this.#shared.get(key) ?? make();
    this.#shared.set(key, known);
    return known;
  }

  /** In a model with any number of rows, the first extent follows from the number of elements. */
  reshape(x: string, shape: readonly number[], result?: string): string {
    const free = this.#anyRows && shape.length > 0 && !shape.includes(-1);
    return this.emit('Reshape', [x, this.int64(free ? shape.with(0, -1) : shape)], {}, result);
  }

  /** Zero of a type, computed only after x: nothing is less than itself, NaN included. */
  zeroAfter(x: string, type: 'float32' | 'uint8' = 'float32'): string {
    const entry = this.emit('Slice', [this.reshape(x, [-1]), this.int64([0]), this.int64([1])]);
    return this.emit('Cast', [this.emit('Less', [entry, entry])], { attributes: { to: TENSOR_TYPE[type] } });
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
    return this.#data(tensor, tensor.attributes.data as TypedArray);
  }

  #data({ dtype, shape }: Tensor, data: TypedArray): string {
    return this.#initializer(dtype, shape, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
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

  /** The model, a message of {@link modelType}. */
  finish() {
    const value = (name: string, tensor: Tensor) =>
      valueInfo(name, tensor, this.#anyRows ? [ROWS, ...tensor.shape.slice(1)] : tensor.shape);
    const output: object[] = [];
    for (const [name, tensor] of this.graph.outputs) {
      const result = outputName(name);
      if (this.valueOf(tensor) !== result) this.emit('Identity', [this.valueOf(tensor)], {}, result);
      output.push(value(result, tensor));
    }
    const input = [...this.graph.inputs].map(([name, tensor]) => value(inputName(name), tensor));
    for (const [name, tensor] of this.graph.parameters) {
      if (!this.#constants.has(name)) input.push(valueInfo(inputName(name), tensor, tensor.shape));
    }
    return {
      irVersion: IR_VERSION,
      producerName: 'ragen',
      opsetImport: OPSETS,
      graph: { name: 'graph', node: this.#nodes, initializer: this.#initializers, input, output },
    };
  }

  #initializer(type: keyof typeof TENSOR_TYPE, shape: readonly number[], bytes: Uint8Array): string {
    const key = `${type} ${shape.join()} ${bytes.length <= 256 ? bytes.join() : this.#count}`;
    const known = this.#initializerNames.get(key);
    if (known !== undefined) return known;
    const name = `c${this.#count++}`;
    this.#initializers.push({ name, dims: shape, dataType: TENSOR_TYPE[type], rawData: bytes });
    this.#initializerNames.set(key, name);
    return name;
  }
}

export type OnnxModel = ReturnType<ModelBuilder['finish']>;

export function inputName(name: string): string {
  return `in/${name}`;
}

export function outputName(name: string): string {
  return `out/${name}`;
}

/** Element type codes of ONNX's TensorProto. */
export const TENSOR_TYPE = {
  float32: 1,
  uint8: 2,
  int8: 3,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
} as const;

/** Attribute kinds of ONNX's AttributeProto. */
const ATTRIBUTE_TYPE = { float: 1, int: 2, string: 3, ints: 7 } as const;

/** The messages of onnx.proto that we write. */
const { root } = protobuf.parse(readFileSync(new URL('./onnx.proto', import.meta.url), 'utf8'));
const modelType = root.lookupType('ModelProto');

/** A number is written as an int unless wrapped: `{ float: 1 }`. */
export type OnnxAttribute = number | { readonly float: number } | string | readonly number[];

/** Serializes to the bytes of an .onnx file. */
export function encodeModel(model: OnnxModel): Uint8Array {
  return modelType.encode(modelType.create(model)).finish();
}

/** @param shape extents; a name means any */
function valueInfo(name: string, { dtype }: Tensor, shape: readonly (number | string)[]): object {
  const dim = shape.map(extent => (typeof extent === 'string' ? { dimParam: extent } : { dimValue: extent }));
  return { name, type: { tensorType: { elemType: TENSOR_TYPE[dtype], shape: { dim } } } };
}

function encodeAttribute(value: OnnxAttribute): object {
  if (typeof value === 'number') return { i: value, type: ATTRIBUTE_TYPE.int };
  if (typeof value === 'string') return { s: new TextEncoder().encode(value), type: ATTRIBUTE_TYPE.string };
  if ('float' in value) return { f: value.float, type: ATTRIBUTE_TYPE.float };
  return { ints: value, type: ATTRIBUTE_TYPE.ints };
}
