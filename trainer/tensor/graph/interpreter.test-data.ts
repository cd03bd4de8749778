import type { NdArray } from './attention-reference.test-data.ts';
import { evaluate } from './reference.test-data.ts';
import { type Graph, GraphError, sizeOf, type Tensor, type TypedArray } from './tensor.ts';

/** Values by name: row-major numbers, bool as 0 or 1. */
export type Values = Readonly<Record<string, ArrayLike<number>>>;

/**
 * Runs a graph in plain float64: slow, exact, the oracle every runtime is compared with.
 *
 * @param values inputs and parameters by name
 * @returns outputs by name
 * @throws GraphError when a value is missing or does not fill its shape
 */
export function interpret(graph: Graph, values: Values): Record<string, Float64Array> {
  const results = new Map<Tensor, NdArray>();
  for (const node of graph.nodes) {
    const data = evaluateNode(node, results, values);
    if (data.length !== sizeOf(node.shape)) {
      throw new GraphError(
        `${node.operation} gave ${data.length} elements for shape [${node.shape.join(',')}]`,
      );
    }
    results.set(node, { dtype: node.dtype, shape: node.shape, data });
  }
  return Object.fromEntries([...graph.outputs].map(([name, tensor]) => [name, results.get(tensor)!.data]));
}

function evaluateNode(node: Tensor, results: ReadonlyMap<Tensor, NdArray>, values: Values): Float64Array {
  if (node.operation === 'constant') return Float64Array.from(node.attributes.data as TypedArray);
  if (node.operation === 'input' || node.operation === 'parameter') {
    const name = node.attributes.name as string;
    if (values[name] === undefined) throw new GraphError(`no value given for ${node.operation} '${name}'`);
    return Float64Array.from(values[name]);
  }
  const inputs = node.inputs.map(input => results.get(input)!);
  return evaluate(node.operation, inputs, node.attributes, node);
}
