import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { turnOfToken } from './turns.ts';
import { whiten } from './whiten.ts';

/**
 * Two levels of generalised advantage estimation: over turns, then over the tokens of each turn.
 *
 * Over turn ends e_k: δ = r + γ_high·V(e_(k+1)) − V(e_k), A = δ + γ_high·λ·A_(k+1). The turn's return A + V becomes
 * the reward of its last token; inside the turn ordinary GAE with γ and λ runs to that token and stops there.
 * R = A + V on sampled tokens, 0 elsewhere. Advantages are whitened over the batch.
 *
 * Turn ends are explicit: a turn whose reward is 0 is still a turn (upstream takes non-zero rewards for ends).
 *
 * Source: RAGEN V2 `compute_bi_level_gae_advantage_return`.
 */
export const biLevelGae: AdvantageEstimator = {
  needs: ['values', 'turnEnds'],
  estimate(sequences, settings) {
    const advantages = sequences.map(sequence => sequenceAdvantages(sequence, settings));
    const returns = advantages.map((array, i) => {
      const { mask, values } = sequences[i];
      return array.map((a, t) => (mask[t] ? a + values![t] : 0));
    });
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

function sequenceAdvantages(sequence: AdvantageSequence, settings: AdvantageSettings): Float64Array {
  const { mask, rewards } = sequence;
  const values = sequence.values!;
  const { gamma, lambda } = settings;
  const turns = turnOfToken(sequence);
  const ends = sequence.turnEnds!;
  const targets = turnTargets(sequence, settings);
  const advantages = new Float64Array(mask.length);
  let nextValue = 0;
  let next = 0;
  for (let t = mask.length - 1; t >= 0; t--) {
    if (!mask[t]) continue;
    const end = ends[turns[t]] === t;
    const delta = end ? targets[turns[t]] - values[t] : rewards[t] + gamma * nextValue - values[t];
    next = end ? delta : delta + gamma * lambda * next;
    nextValue = values[t];
    advantages[t] = next;
  }
  return advantages;
}

/** Return of each turn at the high level. */
function turnTargets(sequence: AdvantageSequence, settings: AdvantageSettings): Float64Array {
  const values = sequence.values!;
  const ends = sequence.turnEnds!;
  const { lambda, highLevelGamma } = settings;
  const targets = new Float64Array(ends.length);
  let nextValue = 0;
  let next = 0;
  for (let k = ends.length - 1; k >= 0; k--) {
    const value = values[ends[k]];
    const delta = sequence.rewards[ends[k]] + highLevelGamma * nextValue - value;
    next = delta + highLevelGamma * lambda * next;
    nextValue = value;
    targets[k] = next + value;
  }
  return targets;
}
