import type { PolicyLoss } from './policy-loss.ts';

/** Negative log-likelihood of given tokens (supervised learning): loss = −log π_θ. */
export const crossEntropy = {
  name: 'cross_entropy',
  kind: 'likelihood',
  tokenLosses: (g, { logProbs }) => ({ losses: g.neg(logProbs) }),
} as const satisfies PolicyLoss;
