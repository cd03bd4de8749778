import type { GraphBuilder, Tensor } from '../tensor/graph/graph.ts';
import type { ExpertsConfig } from './config.ts';

/**
 * A mixture of experts, each computed for every token and weighted: 0 where the router did not choose it.
 * @param routerLogits [tokens, experts]
 * @param expert what expert number `index` gives, [tokens, hiddenSize]
 */
export function mixExperts(
  g: GraphBuilder,
  experts: ExpertsConfig,
  routerLogits: Tensor,
  expert: (index: number) => Tensor,
): Tensor {
  const weights = routingWeights(g, experts, routerLogits);
  const parts = Array.from({ length: experts.count }, (_, index) =>
    g.mul(expert(index), g.slice(weights, 1, index, index + 1)),
  );
  return parts.reduce((sum, part) => g.add(sum, part));
}

/** The router's probabilities [tokens, experts] of the chosen experts, 0 of the others. Of equals the first is chosen. */
function routingWeights(
  g: GraphBuilder,
  { count, perToken, normalized }: ExpertsConfig,
  logits: Tensor,
): Tensor {
  const probabilities = g.softmax(logits);
  const [tokens] = logits.shape;
  const numbers = g.constant(
    Float32Array.from({ length: count }, (_, index) => index),
    [1, count],
  );
  let left = g.stopGradient(probabilities);
  let chosen = g.zeros([tokens, count]);
  for (let round = 0; round < perToken; round++) {
    const best = g.equal(left, g.max(left, [-1], true));
    const first = g.neg(g.max(g.neg(g.where(best, numbers, count)), [-1], true));
    const pick = g.equal(numbers, first);
    chosen = g.where(pick, 1, chosen);
    left = g.where(pick, -1, left);
  }
  const kept = g.mul(probabilities, chosen);
  return normalized ? g.div(kept, g.sum(kept, [-1], true)) : kept;
}
