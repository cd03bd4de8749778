import type { GraphBuilder } from './graph.ts';
import type { Tensor } from './tensor.ts';

/** A step with what it reads, computed again. */
interface RecomputedNode {
  readonly inputs: readonly Tensor[];
  readonly output: Tensor;
}

/**
 * Gradient checkpointing (Chen et al., 2016) while a graph is differentiated: what a stage computed is computed again from
 * its inputs when the backward pass reaches it. So that a runtime, which is free to order steps as it likes, does
 * this neither too early nor keeps it for long, the repetition waits for the gradient that comes into the stage, and what
 * leaves the stage waits for the gradients of its parameters.
 */
export class Recomputation {
  readonly #g: GraphBuilder;
  readonly #active: ReadonlySet<Tensor>;
  /** Parts of each tensor's gradient, as the differentiation collects them. */
  readonly #upstreams: Map<Tensor, Tensor[]>;
  #stage: number | undefined;
  /** Steps of the present stage, and what came into it, by what they repeat. */
  #repeated = new Map<Tensor, Tensor>();
  /** Tensors from before the stage that have got a part of their gradient in it. */
  readonly #reached = new Set<Tensor>();
  readonly #parameterGradients: Tensor[] = [];

  readonly #all: boolean;

  /**
   * @param active tensors that have a gradient
   * @param all every stage, or only those that are always computed again
   */
  constructor(g: GraphBuilder, active: ReadonlySet<Tensor>, upstreams: Map<Tensor, Tensor[]>, all: boolean) {
    this.#g = g;
    this.#all = all;
    this.#active = active;
    this.#upstreams = upstreams;
  }

  /** Ends the stage that the backward pass has left, if it has. */
  arrive(node: Tensor): void {
    if (node.inputs.length === 0 || this.#stageOf(node) === this.#stage) return;
    for (const tensor of this.#reached) {
      const upstream = this.#upstreams.get(tensor)!.reduce((total, part) => this.#g.add(total, part));
      this.#upstreams.set(tensor, [after(this.#g, upstream, this.#parameterGradients)]);
    }
    this.#reached.clear();
    this.#parameterGradients.length = 0;
    this.#repeated = new Map();
    this.#stage = this.#stageOf(node);
  }

  /** A step of the present stage as its gradient is to read it; undefined outside of stages. */
  again(node: Tensor, upstream: Tensor): RecomputedNode | undefined {
    if (this.#stage === undefined) return undefined;
    const repeat = (tensor: Tensor): Tensor => {
      const known = this.#repeated.get(tensor);
      if (known !== undefined) return known;
      const repeated = this.#repeat(tensor, upstream, repeat);
      this.#repeated.set(tensor, repeated);
      return repeated;
    };
    return { inputs: node.inputs.map(repeat), output: repeat(node) };
  }

  /** A rule of a step has given a part of the gradient of one of its inputs. */
  note(node: Tensor, input: Tensor, part: Tensor): void {
    if (this.#stage === undefined || this.#stageOf(node) !== this.#stage) return;
    if (input.operation === 'parameter') this.#parameterGradients.push(part);
    else if (this.#stageOf(input) !== this.#stage) this.#reached.add(input);
  }

  #stageOf(node: Tensor): number | undefined {
    const stage = this.#g.stageOf(node);
    return stage === undefined || this.#all || this.#g.isAlwaysAgain(stage) ? stage : undefined;
  }

  #repeat(tensor: Tensor, upstream: Tensor, repeat: (tensor: Tensor) => Tensor): Tensor {
    if (tensor.inputs.length === 0) return tensor;
    if (this.#stageOf(tensor) !== this.#stage) {
      return this.#active.has(tensor) ? after(this.#g, tensor, [upstream]) : tensor;
    }
    return this.#g.apply(tensor.operation, tensor.inputs.map(repeat), tensor.attributes);
  }
}

/** The same values, there once the events are. */
function after(g: GraphBuilder, x: Tensor, events: readonly Tensor[]): Tensor {
  if (events.length === 0) return x;
  const entries = events.map(event => g.slice(g.reshape(event, [-1]), 0, 0, 1));
  const entry = g.slice(g.concat(entries, 0), 0, 0, 1);
  // Nothing is less than itself, NaN included: zero, which no runtime knows before it has run.
  return g.add(x, g.reshape(g.cast(g.less(entry, entry), 'float32'), []));
}
