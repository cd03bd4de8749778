import { type BuilderOptions, TensorBuilder } from './builder.ts';
import { operations } from './operations/index.ts';

export type { Graph, Shape, Tensor } from './tensor.ts';
export { GraphError } from './tensor.ts';

/**
 * Builds a tensor program from the primitives in `operations/`.
 *
 * @example
 * const g = new GraphBuilder();
 * const x = g.input('x', 'float32', [4, 3]);
 * const w = g.parameter('w', [3, 2]);
 * const loss = g.mean(g.mul(g.matmul(x, w), g.matmul(x, w)));
 * g.output('loss', loss);
 * g.output('w.grad', gradients(g, loss, [w])[0]);
 * const graph = g.build();
 */
export class GraphBuilder extends TensorBuilder {
  constructor(options: BuilderOptions = {}) {
    super(operations, options);
  }
}
