import type { Graph, Tensor } from '../graph/tensor.ts';

/** State of a graph's lowering: the readers of each tensor, and the value of each tensor that is lowered. */
export class LoweringContext<Value> {
  readonly graph: Graph;
  readonly #values = new Map<Tensor, Value>();
  readonly #users = new Map<Tensor, Tensor[]>();

  constructor(graph: Graph) {
    this.graph = graph;
    for (const node of graph.nodes) {
      for (const input of node.inputs) {
        const users = this.#users.get(input);
        if (users === undefined) this.#users.set(input, [node]);
        else users.push(node);
      }
    }
  }

  /** Nodes that read a tensor. */
  usersOf(tensor: Tensor): readonly Tensor[] {
    return this.#users.get(tensor) ?? [];
  }

  isLowered(tensor: Tensor): boolean {
    return this.#values.has(tensor);
  }

  /** The value of a tensor that is lowered already. */
  valueOf(tensor: Tensor): Value {
    const value = this.#values.get(tensor);
    if (value === undefined)
      throw new Error(`the operation '${tensor.operation}' was read before it was lowered`);
    return value;
  }

  /** Sets the value of a tensor. */
  bind(tensor: Tensor, value: Value): void {
    this.#values.set(tensor, value);
  }
}
