import {
  allocate,
  type DType,
  describe,
  type Graph,
  sizeOf,
  type Tensor,
  type TypedArray,
} from '../graph/tensor.ts';
import type { ParameterArray } from './parameter-store.ts';
import type { CompileOptions, Tensors } from './runtime.ts';
import { RuntimeError } from './runtime-error.ts';

/**
 * The parameters' own arrays, by name.
 * @throws RuntimeError when there is no store, or it lacks one of that shape
 */
export function bindParameters(
  graph: Graph,
  { parameters }: CompileOptions,
): ReadonlyMap<string, ParameterArray> {
  const arrays = new Map<string, ParameterArray>();
  for (const [name, tensor] of graph.parameters) {
    if (parameters === undefined) {
      throw new RuntimeError(`the graph has parameters ('${name}', …): give a ParameterStore`);
    }
    arrays.set(name, parameters.data(name, tensor.shape));
  }
  return arrays;
}

/**
 * The arrays passed for outputs, and new ones for the others.
 * @throws RuntimeError naming an unknown output or an array that does not fit
 */
export function bindOutputs(graph: Graph, { outputs = {}, sums = {} }: CompileOptions): Tensors {
  for (const name of [...Object.keys(outputs), ...Object.keys(sums)]) {
    if (!graph.outputs.has(name)) {
      throw new RuntimeError(`the graph has no output '${name}'; it has ${list(graph.outputs)}`);
    }
  }
  const bound: Record<string, TypedArray> = {};
  for (const [name, tensor] of graph.outputs) {
    if (sums[name] !== undefined) continue;
    const array = outputs[name] ?? allocate(tensor.dtype, sizeOf(tensor.shape));
    check('output', name, tensor, array);
    bound[name] = array;
  }
  return bound;
}

/** @throws RuntimeError naming an input that the graph does not have */
export function refuseUnknownInputs(graph: Graph, inputs: Readonly<Record<string, unknown>>): void {
  for (const name of Object.keys(inputs)) {
    if (graph.inputs.has(name)) continue;
    throw new RuntimeError(`the graph has no input '${name}'; it has ${list(graph.inputs)}`);
  }
}

/** @throws RuntimeError naming an input on the device that the graph does not have, or that does not fit */
export function checkResident(graph: Graph, { resident = {} }: CompileOptions): void {
  refuseUnknownInputs(graph, resident);
  for (const [name, { length }] of Object.entries(resident)) {
    const tensor = graph.inputs.get(name)!;
    if (length === sizeOf(tensor.shape)) continue;
    throw new RuntimeError(
      `input '${name}' is ${describe(tensor)}, its array on the device has ${length} elements`,
    );
  }
}

/** @throws RuntimeError when the array is missing, of another type or length */
export function checkInput(name: string, tensor: Tensor, array: TypedArray | undefined): void {
  check('input', name, tensor, array);
}

function list(named: ReadonlyMap<string, Tensor>): string {
  return [...named.keys()].join(', ') || 'none';
}

const ARRAY_TYPES: Readonly<Record<DType, new (length: number) => TypedArray>> = {
  float32: Float32Array,
  int32: Int32Array,
  bool: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
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
