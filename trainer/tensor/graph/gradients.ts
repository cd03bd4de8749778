import type { GraphBuilder } from './graph.ts';
import { operations } from './operations/index.ts';
import { Recomputation } from './recomputation.ts';
import { describe, GraphError, sizeOf, type Tensor } from './tensor.ts';

/**
 * Differentiates a scalar by reverse accumulation: adds the nodes that compute ∂loss/∂x for each x to the
 * builder. Nothing is added for tensors that no x reaches.
 *
 * @param loss one float32 element
 * @param wrt float32 tensors; one the loss does not depend on gets zeros
 * @param options.recompute computes the steps of each stage again in the backward pass, from the inputs of the stage, instead
 *   of keeping all of them from the way there; so are those of stages that always are
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
      // Parts of a weight's gradient are as large as the weight: where stages follow one another, none outlives its stage.
      const parts =
        input.operation === 'parameter' && known.length > 0 ? [g.add(known[0], part)] : [...known, part];
      upstreams.set(input, parts);
      recomputation.note(node, input, parts.at(-1)!);
    });
  }
  return wrt.map(tensor => upstreams.get(tensor)?.[0] ?? g.zeros(tensor.shape));
}

/** Tensors on a differentiable way from one of `wrt`. */
function findActive(nodes: readonly Tensor[], wrt: readonly Tensor[]): Set<Tensor> {
  const active = new Set<Tensor>(wrt);
  for (const node of nodes) {
    const differentiable = operations.get(node.operation)?.gradient !== undefined;
    if (differentiable && node.inputs.some(input => active.has(input))) active.add(node);
  }
  return active;
}
