import { mean } from '../../statistics.ts';
import type { AdvantageEstimator } from '../estimator.ts';

const SUM_FLOOR = 1e-8;

/**
 * On-policy distillation with weights that favor early tokens: a_t = log π_teacher − log π_rollout on sampled tokens, times
 * w_t = 1 + γ·(1 − Σ_{j<t} |a_j| / Σ|a|), with γ = `earlyWeight`; 0 is plain on-policy distillation. Rewards do not count. Despite the
 * name, the weight is not an importance ratio. With `loss.policy: cispo` and both clips 0 the loss is −w·a·log π_θ.
 *
 * Source: arXiv 2606.22600; TRL `_compute_iw_opd_loss`.
 */
export const iwOpd: AdvantageEstimator = {
  needs: ['logProbs', 'referenceLogProbs'],
  estimate(sequences, { earlyWeight }) {
    const weights: number[] = [];
    const gaps: number[] = [];
    const weighted: number[] = [];
    const advantages = sequences.map(({ lossMask, logProbs, referenceLogProbs }, index) => {
      const gap = Float64Array.from(lossMask, (on, t) => (on ? referenceLogProbs![t] - logProbs![t] : 0));
      const missing = gap.findIndex(value => !Number.isFinite(value));
      if (missing >= 0) {
        throw new RangeError(
          `sequence ${index}: the teacher's log-probability of sampled token ${missing} is ${referenceLogProbs![missing]}; iw_opd needs one for every sampled token`,
        );
      }
      const total = Math.max(
        gap.reduce((sum, value) => sum + Math.abs(value), 0),
        SUM_FLOOR,
      );
      let before = 0;
      return gap.map((value, t) => {
        if (!lossMask[t]) return 0;
        const weight = 1 + earlyWeight * (1 - before / total);
        before += Math.abs(value);
        weights.push(weight);
        gaps.push(value);
        weighted.push(weight * value);
        return weight * value;
      });
    });
    return { advantages, returns: advantages, metrics: summary({ weights, gaps, weighted }) };
  },
};

function summary({
  weights,
  gaps,
  weighted,
}: Readonly<Record<'weights' | 'gaps' | 'weighted', readonly number[]>>): Record<string, number> {
  if (weights.length === 0) return {};
  return {
    'iw_opd/mean_advantage': mean(weighted),
    'iw_opd/mean_abs_advantage': mean(gaps.map(Math.abs)),
    'iw_opd/mean_weight': mean(weights),
    'iw_opd/min_weight': weights.reduce((a, b) => Math.min(a, b)),
    'iw_opd/max_weight': weights.reduce((a, b) => Math.max(a, b)),
  };
}
