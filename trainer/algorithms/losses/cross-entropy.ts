import type { GraphBuilder } from '../../tensor/graph/graph.ts';
import type { PolicyLoss, PolicyLossInput, TokenLosses } from './policy-loss.ts';

/**
 * Negative log-likelihood of given tokens, −log π_θ: the term of the cross-entropy stream. As a policy loss it is
 * supervised learning: there is no policy gradient, and a trained token without a weight has 1 in that stream.
 */
export const crossEntropy = {
  name: 'cross_entropy',
  kind: 'likelihood',
  tokenLosses: (g: GraphBuilder, { logProbs }: Pick<PolicyLossInput, 'logProbs'>): TokenLosses => ({
    losses: g.neg(logProbs),
  }),
} as const satisfies PolicyLoss;
