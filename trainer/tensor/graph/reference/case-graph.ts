import { gradients } from '../gradients.ts';
import { type Graph, GraphBuilder } from '../graph.ts';
import { sizeOf } from '../tensor.ts';
import type { OperationCase } from './cases.ts';

/** The case as a graph: its value as `y`, and the gradients of a fixed weighting of y as `x.grad`. */
export function caseGraph(operationCase: OperationCase): Graph {
  const g = new GraphBuilder();
  const inputs = Object.fromEntries(
    Object.entries(operationCase.inputs).map(([name, { dtype, shape }]) => [
      name,
      g.input(name, dtype, shape),
    ]),
  );
  const y = operationCase.build(g, inputs);
  g.output('y', y);
  if (y.dtype === 'float32' && operationCase.differentiate.length > 0) {
    const weights = Array.from({ length: sizeOf(y.shape) }, (_, i) => Math.fround(Math.sin(i + 1)));
    const loss = g.sum(g.mul(y, g.constant(weights, y.shape)));
    g.output('loss', loss);
    const wrt = operationCase.differentiate.map(name => inputs[name]);
    gradients(g, loss, wrt).forEach((gradient, i) => {
      g.output(`${operationCase.differentiate[i]}.grad`, gradient);
    });
  }
  return g.build();
}
