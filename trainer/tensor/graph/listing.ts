import { type AttributeValue, describe, type Graph, type Tensor } from './tensor.ts';

/** Longest list of numbers that is written out. */
const MAX_LIST_LENGTH = 16;

/** A graph as text for people, a line a node in the order of computation: `%7 = mul(%3, %5) : float32[4,128]`. */
export function listGraph(graph: Graph): string {
  const names = new Map<Tensor, string>();
  for (const [name, node] of [...graph.inputs, ...graph.parameters]) names.set(node, name);
  const lines = graph.nodes.map(node => {
    const reads = names.get(node) ?? node.inputs.map(({ id }) => `%${id}`).join(', ');
    const settings = Object.entries(node.attributes)
      .filter(([key]) => !(names.has(node) && key === 'name'))
      .map(([key, value]) => ` ${key}=${shown(value)}`);
    return `%${node.id} = ${node.operation}(${reads})${settings.join('')} : ${describe(node)}`;
  });
  const outputs = [...graph.outputs].map(
    ([name, node]) => `output ${name} = %${node.id} : ${describe(node)}`,
  );
  return [...lines, ...outputs, ''].join('\n');
}

function shown(value: AttributeValue): string {
  if (typeof value !== 'object') return String(value);
  return value.length > MAX_LIST_LENGTH ? `(${value.length} numbers)` : `[${value.join(',')}]`;
}
