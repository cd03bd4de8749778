import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import type { PolicyLoss } from './policy-loss.ts';

/**
 * Direct preference optimization: of two episodes from one start the better becomes likelier than the worse, measured
 * from a reference policy. h = Σ over trained tokens of log π_θ − log π_ref; m = β · (h_chosen − h_rejected); loss of a
 * pair = −log σ(m), averaged over the pairs of the step. Each sequence of a pair carries half of the loss. A sequence
 * gets its own h from the graph and its partner's as an input, computed under the same weights, so a pair may be split
 * among micro-batches and workers. Its tokens have the gradient of the pair's whole loss, since only the sequence
 * itself moves its tokens. Source: Rafailov et al., 2023; TRL `DPOTrainer`, loss type `sigmoid`; the metrics have its
 * names.
 */
export const dpo = {
  name: 'dpo',
  kind: 'preference',
  reads: ['meanWeights', 'referenceLogProbs', 'preferences', 'partnerLogRatios'],
  check({ aggregation, beta, kl }) {
    if (!(beta > 0)) throw new RangeError(`loss.beta is ${beta}; dpo needs it above 0 (0.1 is usual)`);
    if (aggregation !== 'seq_mean_token_sum') {
      throw new RangeError(
        `loss.aggregation is ${aggregation}, but dpo sums the log-likelihood of whole episodes: use seq_mean_token_sum`,
      );
    }
    if (kl.coefficient > 0) {
      throw new RangeError(
        'loss.kl.coefficient is above 0, but dpo keeps the policy near its reference by itself: set it to 0, and loss.beta as wanted',
      );
    }
  },
  tokenLosses(g, { logProbs, token, sequenceSum }) {
    // β of the chosen, −β of the rejected.
    const preference = token('preferences');
    const share = token('meanWeights');
    const logRatio = sequenceSum(g.stopGradient(g.sub(logProbs, token('referenceLogProbs'))));
    const margin = g.mul(preference, g.sub(logRatio, token('partnerLogRatios')));
    const loss = softplus(g, g.neg(margin));
    // σ(−m) = e^(−softplus(m)), and softplus(m) = softplus(−m) + m.
    const derivative = g.mul(g.neg(preference), g.exp(g.neg(g.add(loss, margin))));
    const own = g.mul(g.mul(derivative, 2), g.sub(logProbs, g.stopGradient(logProbs)));
    const reward = g.mul(preference, logRatio);
    const chosen = g.greater(preference, 0);
    return {
      losses: g.add(g.mul(loss, share), own),
      metrics: new Map([
        ['rewards/margins', g.mul(margin, share)],
        ['rewards/accuracies', g.mul(g.where(g.greater(margin, 0), 1, 0), share)],
        ['rewards/chosen', g.mul(g.where(chosen, g.mul(reward, 2), 0), share)],
        ['rewards/rejected', g.mul(g.where(chosen, 0, g.mul(reward, -2)), share)],
      ]),
    };
  },
} as const satisfies PolicyLoss;

/** log(1 + e^x) */
function softplus(g: GraphBuilder, x: Tensor): Tensor {
  return g.add(g.maximum(x, 0), g.log(g.add(g.exp(g.neg(g.abs(x))), 1)));
}
