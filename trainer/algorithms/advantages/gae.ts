import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { turnEnds } from './turns.ts';
import { whiten } from './whiten.ts';

/**
 * Generalised advantage estimation (Schulman et al., 2016) over sampled tokens.
 *
 * δ_t = r_t + γ·V′ − V_t and A_t = δ_t + γ·λ·A′, where V′ and A′ belong to the next *sampled* token: masked tokens
 * are stepped over, their entries hold A′ unchanged. R = A + V. Advantages are whitened over the batch.
 *
 * With `turnLambda`, λ applies within a turn and turnLambda from a turn's last token to the next turn (long
 * responses then do not discount the trace, turns do).
 *
 * Source: verl 0.6.1 `compute_gae_advantage_return`.
 */
export const gae: AdvantageEstimator = {
  needs: ['values'],
  estimate(sequences, settings) {
    const advantages = sequences.map(sequence => sequenceGae(sequence, settings));
    const returns = advantages.map((array, i) => array.map((a, t) => a + sequences[i].values![t]));
    if (!settings.whiten) return { advantages, returns };
    return {
      advantages: whiten(
        advantages,
        sequences.map(sequence => sequence.mask),
      ),
      returns,
    };
  },
};

function sequenceGae(sequence: AdvantageSequence, settings: AdvantageSettings): Float64Array {
  const { mask, rewards } = sequence;
  const values = sequence.values!;
  const { gamma, lambda, turnLambda = lambda } = settings;
  const ends = turnLambda === lambda ? new Set<number>() : new Set(turnEnds(sequence));
  const advantages = new Float64Array(mask.length);
  let nextValue = 0;
  let next = 0;
  for (let t = mask.length - 1; t >= 0; t--) {
    if (mask[t]) {
      const delta = rewards[t] + gamma * nextValue - values[t];
      next = delta + gamma * (ends.has(t) ? turnLambda : lambda) * next;
      nextValue = values[t];
    }
    advantages[t] = next;
  }
  return advantages;
}
