import type { GraphBuilder } from '../../tensor/graph/graph.ts';
import {
  boundedLogRatios,
  clippedSurrogate,
  type PolicyLoss,
  type PolicyLossInput,
  type TokenLosses,
} from './policy-loss.ts';

/**
 * Proximal policy optimization with separate clip ranges and the dual clip.
 *
 * loss = max(−A·ρ, −A·clip(ρ, 1 − ε_low, 1 + ε_high)), and for A < 0 no more than −c·A; ρ = π_θ / π_old.
 *
 * Sources: Schulman et al., 2017; Yu et al., 2025 (clip-higher); Ye et al., 2020 (dual clip);
 * verl 0.6.1 `compute_policy_loss_vanilla`.
 */
export const ppo = { name: 'ppo', kind: 'ratio', tokenLosses } as const satisfies PolicyLoss;

/**
 * PPO around π_prox, the weights at the start of the update. The weight π_prox / π_behave comes with the loss inputs.
 *
 * Source: AReaL (Fu et al., 2025).
 */
export const decoupledPpo = {
  ...ppo,
  name: 'decoupled_ppo',
  needsProximal: true,
} as const satisfies PolicyLoss;

function tokenLosses(g: GraphBuilder, input: PolicyLossInput): TokenLosses {
  const logRatios = boundedLogRatios(g, input);
  const surrogate = clippedSurrogate(g, input, g.exp(logRatios));
  if (!input.dualClip) return { ...surrogate, logRatios };
  const advantages = input.token('advantages');
  const ceiling = g.neg(g.mul(advantages, input.scalar('dualClip')));
  const clippedLower = g.and(g.less(advantages, 0), g.greater(surrogate.losses, ceiling));
  const losses = g.where(clippedLower, ceiling, surrogate.losses);
  return { losses, logRatios, clipped: surrogate.clipped, clippedLower };
}
