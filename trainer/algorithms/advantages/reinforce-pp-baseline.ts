import { type AdvantageEstimator, spread } from './estimator.ts';
import { compared, groupOutcomes } from './groups.ts';
import { whitenMasked } from './whiten.ts';

/**
 * REINFORCE++ with a group baseline: R − mean of the group at every sampled token, then whitened over the batch.
 *
 * Source: Hu, 2025; verl 0.6.1 `compute_reinforce_plus_plus_baseline_outcome_advantage`.
 */
export const reinforcePpBaseline: AdvantageEstimator = {
  needs: ['groups'],
  perSequence: true,
  estimate(sequences, settings) {
    const values = groupOutcomes(sequences).map(group => compared(group, false));
    const advantages = whitenMasked(spread(sequences, values), sequences, settings);
    return { advantages, returns: advantages };
  },
};
