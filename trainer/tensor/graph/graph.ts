import { type BuilderOptions, TensorBuilder } from './builder.ts';
import * as attention from './operations/attention.ts';
import * as blocks from './operations/blocks.ts';
import * as device from './operations/device.ts';
import * as elementwise from './operations/elementwise.ts';
import * as movement from './operations/movement.ts';
import type { Operation } from './operations/operation.ts';
import * as products from './operations/products.ts';

export type { Graph, Shape, Tensor } from './tensor.ts';

/**
 * Every primitive by name: the operations that the files of each kind export. A runtime lowers all of them, except that
 * it may lack those of `device.ts`. The contract suite runs all that a runtime has.
 */
export const operations: ReadonlyMap<string, Operation> = new Map(
  [elementwise, products, blocks, movement, attention, device]
    .flatMap((kind): unknown[] => Object.values(kind))
    .filter(isOperation)
    .map(operation => [operation.name, operation]),
);

function isOperation(exported: unknown): exported is Operation {
  return typeof exported === 'object' && exported !== null && 'infer' in exported;
}

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
