import { type AdvantageEstimator, spread } from './estimator.ts';
import { groupOutcomes } from './groups.ts';
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
    const values = groupOutcomes(sequences).map(({ score, mean }) => score - mean);
    const centered = spread(sequences, values);
    const lossMasks = sequences.map(sequence => sequence.lossMask);
    const advantages = settings.whiten ? whitenMasked(centered, lossMasks) : centered;
    return { advantages, returns: advantages };
  },
};
