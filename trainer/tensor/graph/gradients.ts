import { type GraphBuilder, operations } from './graph.ts';
import { describe, GraphError, sizeOf, type Tensor } from './tensor.ts';

/** A recomputed step with its inputs. */
interface RecomputedNode {
  readonly inputs: readonly Tensor[];
  readonly output: Tensor;
}

/**
 * Gradient checkpointing (Chen et al., 2016): when the backward pass reaches a stage, the stage is recomputed from its
 * inputs. A runtime may order steps freely. So that it neither recomputes too early nor keeps the results too long, the
 * recomputation waits for the gradient that enters the stage, and the gradient that leaves the stage waits for those of
 * the stage's parameters.
 */
class Recomputation {
  readonly #g: GraphBuilder;
  readonly #active: ReadonlySet<Tensor>;
  /** Parts of each tensor's gradient, as the differentiation collects them. */
  readonly #upstreams: Map<Tensor, Tensor[]>;
  #stage: number | undefined;
  /** Steps and inputs of the present stage, by the tensors they repeat. */
  #repeated = new Map<Tensor, Tensor>();
  /** Tensors from before the stage that received a part of their gradient in it. */
  readonly #reached = new Set<Tensor>();
  readonly #parameterGradients: Tensor[] = [];

  readonly #all: boolean;

  /**
   * @param active tensors that have a gradient
   * @param all recomputes every stage, instead of only those that are always recomputed
   */
  constructor(g: GraphBuilder, active: ReadonlySet<Tensor>, upstreams: Map<Tensor, Tensor[]>, all: boolean) {
    this.#g = g;
    this.#all = all;
    this.#active = active;
    this.#upstreams = upstreams;
  }

  /** Ends the stage if the backward pass has left it. */
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

  /** A step of the present stage in the form that its gradient reads; undefined outside of stages. */
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

  /** Notes that a gradient rule gave a part of the gradient of one of its inputs. */
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

/** The same values, available only after the events. */
function after(g: GraphBuilder, x: Tensor, events: readonly Tensor[]): Tensor {
  if (events.length === 0) return x;
  const entries = events.map(event => g.slice(g.reshape(event, [-1]), 0, 0, 1));
  const entry = g.slice(g.concat(entries, 0), 0, 0, 1);
  // Nothing is less than itself, NaN included: a zero that no runtime can fold before it runs.
  return g.add(x, g.reshape(g.cast(g.less(entry, entry), 'float32'), []));
}

/**
 * Differentiates a scalar by reverse accumulation: adds the nodes that compute ∂loss/∂x for each x to the builder. Adds
 * nothing for tensors that no x reaches.
 * @param loss one float32 element
 * @param wrt float32 tensors; one the loss does not depend on gets zeros
 * @param options.recompute recomputes the steps of each stage in the backward pass from the stage's inputs, instead of
 * keeping them from the forward pass; stages marked `always` are recomputed in any case
 * @returns gradients in the order of `wrt`, each of its tensor's shape
 * @throws GraphError when the loss is not a float scalar
 */
export function gradients(
  g: GraphBuilder,
  loss: Tensor,
  wrt: readonly Tensor[],
  options: { readonly recompute?: boolean } = {},
): Tensor[] {
  if (loss.dtype !== 'float32' || sizeOf(loss.shape) !== 1) {
    throw new GraphError(`gradients need a loss of one float32 element, got ${describe(loss)}`);
  }
  for (const tensor of wrt) {
    if (tensor.dtype !== 'float32') throw new GraphError(`no gradient with respect to ${describe(tensor)}`);
  }
  const nodes = g.nodes.slice(0, loss.id + 1);
  const active = findActive(nodes, wrt);
  const upstreams = new Map<Tensor, Tensor[]>([[loss, [g.constant(1, loss.shape)]]]);
  const recomputation = new Recomputation(g, active, upstreams, options.recompute ?? false);
  for (const node of nodes.toReversed()) {
    recomputation.arrive(node);
    const parts = upstreams.get(node);
    if (parts === undefined || !active.has(node)) continue;
    const upstream = parts.reduce((total, part) => g.add(total, part));
    upstreams.set(node, [upstream]);
    const rule = operations.get(node.operation)?.gradient;
    if (rule === undefined) continue;
    const needs = (index: number): boolean => active.has(node.inputs[index]);
    const { inputs, output } = recomputation.again(node, upstream) ?? { inputs: node.inputs, output: node };
    const context = { g, inputs, output, attributes: node.attributes, upstream, needs };
    rule(context).forEach((part, index) => {
      if (part === undefined || !needs(index)) return;
      const input = node.inputs[index];
      const known = upstreams.get(input) ?? [];
      // Parts of a weight's gradient are as large as the weight. With stages, no part outlives its stage.
      const parts =
        input.operation === 'parameter' && known.length > 0 ? [g.add(known[0], part)] : [...known, part];
      upstreams.set(input, parts);
      recomputation.note(node, input, parts.at(-1)!);
    });
  }
  return wrt.map(tensor => upstreams.get(tensor)?.[0] ?? g.zeros(tensor.shape));
}

/** Tensors on a differentiable path from one of `wrt`. */
function findActive(nodes: readonly Tensor[], wrt: readonly Tensor[]): Set<Tensor> {
  const active = new Set<Tensor>(wrt);
  for (const node of nodes) {
    const differentiable = operations.get(node.operation)?.gradient !== undefined;
    if (differentiable && node.inputs.some(input => active.has(input))) active.add(node);
  }
  return active;
}
