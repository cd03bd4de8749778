import { mean } from '../../statistics.ts';
import { type AdvantageEstimator, spread } from '../estimator.ts';
import { compared, groupOutcomes } from '../groups.ts';
import { whitenMasked } from '../whiten.ts';

/**
 * Group reward-decoupled normalization: each reward component is compared within the group separately, A_k = (R_k −
 * mean)/(std + 1e-6), so a component with a large spread does not dominate; then Σ w_k·A_k, whitened over the sampled
 * tokens of the batch. `stdNormalize: false` leaves out the division. A group of one has mean 0 and std 1. Source:
 * arXiv 2601.05242; verl `compute_gdpo_outcome_advantage`.
 */
export const gdpo: AdvantageEstimator = {
  needs: ['groups', 'components'],
  perSequence: true,
  estimate(sequences, { components, stdNormalize, whiten }) {
    const keys = Object.keys(components);
    if (keys.length === 0) {
      throw new RangeError(
        'gdpo needs the names of the reward components: set algorithm.reward_components, e.g. {reward: 1, format_penalty: 1}',
      );
    }
    const values = new Float64Array(sequences.length);
    const metrics: Record<string, number> = {};
    for (const key of keys) {
      const rewards = sequences.map((sequence, i) => componentOf(sequence.components!, key, i));
      const groups = groupOutcomes(sequences, rewards);
      groups.forEach((group, i) => {
        values[i] += components[key] * compared(group, stdNormalize);
      });
      metrics[`critic/component_std/${key}`] = mean(
        groups.map(({ std, episodes }) => (episodes > 1 ? std : 0)),
      );
      metrics[`critic/component_zero_std_frac/${key}`] = mean(
        groups.map(({ std, episodes }) => (episodes > 1 && std === 0 ? 1 : 0)),
      );
    }
    const advantages = whitenMasked(spread(sequences, values), sequences, { whiten });
    return { advantages, returns: advantages, metrics };
  },
};

function componentOf(components: Readonly<Record<string, number>>, key: string, index: number): number {
  if (Object.hasOwn(components, key)) return components[key];
  throw new RangeError(
    `sequence ${index} has no reward component "${key}"; it has ${Object.keys(components).join(', ') || 'none'}`,
  );
}
