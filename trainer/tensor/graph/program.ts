import {
  type Attributes,
  type AttributeValue,
  allocate,
  type DType,
  describe,
  type Graph,
  GraphError,
  type Shape,
  sameShape,
  sizeOf,
  type Tensor,
  type TensorType,
  type TypedArray,
} from './tensor.ts';

/** View that a program's builder has of an operation: its type, and its value where its inputs are constants. */
export interface Primitive<A extends Attributes = Attributes> {
  /** @throws GraphError when the inputs do not fit */
  infer(inputs: readonly TensorType[], attributes: A): TensorType;
  /** Elements of the result where all inputs are small constants; undefined, or absent, where a runtime computes them. */
  fold?(inputs: readonly TypedArray[], type: TensorType): ArrayLike<number> | undefined;
}

/** Element types of weights: numbers, or codes of quantized ones. */
export type ParameterType = 'float32' | 'int8' | 'uint8';

/** Primitives by name. */
export type PrimitiveTable = ReadonlyMap<string, Primitive>;

/**
 * A tensor program under construction: its values by name, and a node for each step. Shapes are concrete. Equal nodes
 * are built once, and the small constants that gradients make are computed at once.
 */
export class Program {
  readonly #operations: PrimitiveTable;
  readonly #nodes: Tensor[] = [];
  readonly #known = new Map<string, Tensor>();
  readonly #inputs = new Map<string, Tensor>();
  readonly #parameters = new Map<string, Tensor>();
  readonly #outputs = new Map<string, Tensor>();
  readonly #stages = new Map<Tensor, number>();
  readonly #alwaysAgain = new Set<number>();
  #stage: number | undefined;
  #stageCount = 0;

  constructor(operations: PrimitiveTable) {
    this.#operations = operations;
  }

  /** Every node so far, in the order built. */
  get nodes(): readonly Tensor[] {
    return this.#nodes;
  }

  /**
   * Groups the steps that `build` adds into a stage. Gradients may recompute a stage instead of keeping its values.
   * That pays off where a stage has large values between a small input and output, as a layer does.
   * @param always gradients recompute this stage even where they keep others
   */
  stage<T>(build: () => T, always = false): T {
    if (this.#stage !== undefined) throw new GraphError('a stage cannot begin inside another');
    this.#stage = this.#stageCount++;
    if (always) this.#alwaysAgain.add(this.#stage);
    try {
      return build();
    } finally {
      this.#stage = undefined;
    }
  }

  /** Number of the stage that a step belongs to; undefined outside of stages. */
  stageOf(node: Tensor): number | undefined {
    return this.#stages.get(node);
  }

  /** True if gradients recompute a stage even where they keep others. */
  isAlwaysAgain(stage: number): boolean {
    return this.#alwaysAgain.has(stage);
  }

  /** A value that every run passes. */
  input(name: string, dtype: DType, shape: Shape): Tensor {
    this.#claim(name);
    const tensor = this.#append('input', [], { name }, dtype, shape);
    this.#inputs.set(name, tensor);
    return tensor;
  }

  /** A weight that the runtime keeps between runs; a second call with the name returns the same tensor. */
  parameter(name: string, shape: Shape, dtype: ParameterType = 'float32'): Tensor {
    const known = this.#parameters.get(name);
    if (known !== undefined) {
      if (sameShape(known.shape, shape) && known.dtype === dtype) return known;
      throw new GraphError(
        `parameter '${name}' is ${describe(known)}, asked for as ${describe({ dtype, shape })}`,
      );
    }
    this.#claim(name);
    const tensor = this.#append('parameter', [], { name }, dtype, shape);
    this.#parameters.set(name, tensor);
    return tensor;
  }

  /** Fixed data: a scalar, or elements in row-major order with a shape. */
  constant(value: number | ArrayLike<number>, shape?: Shape, dtype: DType = 'float32'): Tensor {
    const scalar = typeof value === 'number';
    const extents = shape ?? (scalar ? [] : [value.length]);
    const data = allocate(dtype, scalar ? sizeOf(extents) : value.length);
    if (scalar) data.fill(value);
    else data.set(value);
    if (data.length !== sizeOf(extents)) {
      throw new GraphError(`constant: ${data.length} elements do not fill shape [${extents.join(',')}]`);
    }
    if (data.length > 1) return this.#append('constant', [], { data }, dtype, extents);
    const key = `constant ${dtype} [${extents.join()}] ${Object.is(data[0], -0) ? '-0' : data[0]}`;
    const known = this.#known.get(key) ?? this.#append('constant', [], { data }, dtype, extents);
    this.#known.set(key, known);
    return known;
  }

  /** Names a result; one tensor may have several names. */
  output(name: string, tensor: Tensor): void {
    if (this.#outputs.has(name)) throw new GraphError(`output '${name}' is defined twice`);
    this.#own(tensor);
    this.#outputs.set(name, tensor);
  }

  /** The program so far: the nodes that the outputs need, and every declared input. */
  build(): Graph {
    if (this.#outputs.size === 0) throw new GraphError('a graph needs at least one output');
    const needed = new Set<Tensor>(this.#inputs.values());
    const pending = [...this.#outputs.values()];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      if (needed.has(node) && node.inputs.length === 0) continue;
      needed.add(node);
      for (const input of node.inputs) if (!needed.has(input)) pending.push(input);
    }
    const nodes = this.#nodes.filter(node => needed.has(node));
    const parameters = new Map([...this.#parameters].filter(([, tensor]) => needed.has(tensor)));
    return Object.freeze({
      nodes,
      inputs: new Map(this.#inputs),
      parameters,
      outputs: new Map(this.#outputs),
    });
  }

  /**
   * Adds a node of a primitive by name.
   * @throws GraphError when the operation is unknown or the inputs do not fit it
   */
  apply(name: string, inputs: readonly Tensor[], attributes: Attributes = {}): Tensor {
    const operation = this.#operations.get(name);
    if (operation === undefined) {
      throw new GraphError(`unknown operation '${name}'; known: ${[...this.#operations.keys()].join(', ')}`);
    }
    for (const input of inputs) this.#own(input);
    const key = `${name} ${inputs.map(input => input.id).join()} ${JSON.stringify(attributes)}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const type = operation.infer(inputs, attributes);
    const foldable = inputs.every(isSmallConstant) && isSmall(type.shape);
    const data = foldable
      ? operation.fold?.(
          inputs.map(input => input.attributes.data as TypedArray),
          type,
        )
      : undefined;
    const tensor =
      data === undefined
        ? this.#append(name, inputs, attributes, type.dtype, type.shape)
        : this.constant(data, type.shape, type.dtype);
    this.#known.set(key, tensor);
    return tensor;
  }

  #append(
    operation: string,
    inputs: readonly Tensor[],
    attributes: Readonly<Record<string, AttributeValue>>,
    dtype: DType,
    shape: Shape,
  ): Tensor {
    const tensor = Object.freeze({ id: this.#nodes.length, operation, inputs, attributes, dtype, shape });
    this.#nodes.push(tensor);
    if (this.#stage !== undefined && inputs.length > 0) this.#stages.set(tensor, this.#stage);
    return tensor;
  }

  #claim(name: string): void {
    if (this.#inputs.has(name) || this.#parameters.has(name)) {
      throw new GraphError(`the name '${name}' is already an input or parameter`);
    }
  }

  #own(tensor: Tensor): void {
    if (this.#nodes[tensor.id] !== tensor) throw new GraphError('the tensor belongs to another GraphBuilder');
  }
}

/** Constants up to this many elements are computed when they are built. */
const FOLDED_ELEMENTS = 4096;
/** Rows per output from which a scale of the columns moves from the left side of a product to the right one. */
const FOLDING_ROWS = 2;

/** True if the tensor is a constant that holds only this value. */
export function isConstant(tensor: Tensor, value: number): boolean {
  if (tensor.operation === 'broadcastTo') return isConstant(tensor.inputs[0], value);
  return (
    tensor.operation === 'constant' && (tensor.attributes.data as TypedArray).every(entry => entry === value)
  );
}

/** True if a value of this shape is computed while the graph is built, where its inputs are known. */
function isSmall(shape: Shape): boolean {
  return sizeOf(shape) <= FOLDED_ELEMENTS;
}

function isSmallConstant(tensor: Tensor): boolean {
  return tensor.operation === 'constant' && isSmall(tensor.shape);
}

/** True if broadcasting `other` against `x` keeps the shape of `x`. */
export function covers(x: Tensor, other: Tensor): boolean {
  const lead = x.shape.length - other.shape.length;
  return lead >= 0 && other.shape.every((extent, i) => extent === 1 || extent === x.shape[lead + i]);
}

/**
 * Splits a left side x · columns, with one factor per column and clearly more rows than the matrix on the right
 * has outputs: scaling the smaller right side instead is the same product.
 */
export function columnScale(
  a: Tensor,
  b: Tensor,
  transposeB: boolean,
): [x: Tensor, columns: Tensor] | undefined {
  if (a.operation !== 'mul' || b.shape.length !== 2) return undefined;
  const width = a.shape[a.shape.length - 1];
  const columns = a.inputs.findIndex(input => sameShape(input.shape, [width]));
  const x = a.inputs[1 - columns];
  if (columns === -1 || !sameShape(x.shape, a.shape)) return undefined;
  const rows = sizeOf(a.shape) / width;
  const outputs = b.shape[transposeB ? 0 : 1];
  return rows >= FOLDING_ROWS * outputs ? [x, a.inputs[columns]] : undefined;
}

/** The shape `to` with its free extent, −1, filled in. @throws GraphError when it does not fit */
export function resolveShape(from: Shape, to: Shape): Shape {
  const free = to.indexOf(-1);
  if (free === -1) return [...to];
  const rest = sizeOf(to.with(free, 1));
  const extent = sizeOf(from) / rest;
  if (to.indexOf(-1, free + 1) !== -1 || !Number.isInteger(extent)) {
    throw new GraphError(`reshape: [${from.join(',')}] does not fit [${to.join(',')}]`);
  }
  return to.with(free, extent);
}
