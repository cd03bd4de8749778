import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { advantagesOver, sampledPositions } from './gae.ts';
import { turnOfToken } from './turns.ts';
import { whiten } from './whiten.ts';

/**
 * Two levels of generalized advantage estimation: over turns, then over the tokens of each turn.
 *
 * Over turn ends e_k: δ = r + γ_high·V(e_(k+1)) − V(e_k), A = δ + γ_high·λ·A_(k+1). The turn's return A + V becomes
 * the reward of its last token; inside the turn ordinary GAE with γ and λ runs to that token and stops there.
 * R = A + V on sampled tokens, 0 elsewhere. Advantages are whitened over the batch.
 *
 * Turn ends are explicit: a turn with reward 0 is still a turn (upstream takes non-zero rewards for ends).
 *
 * Source: RAGEN V2 `compute_bi_level_gae_advantage_return`.
 */
export const biLevelGae: AdvantageEstimator = {
  needs: ['values', 'turnEnds'],
  estimate(sequences, settings) {
    const advantages = sequences.map(sequence => sequenceAdvantages(sequence, settings));
    const returns = advantages.map((array, i) => {
      const { lossMask, values } = sequences[i];
      return array.map((a, t) => (lossMask[t] ? a + values![t] : 0));
    });
    return { advantages: whiten(advantages, sequences, settings), returns };
  },
};

function sequenceAdvantages(sequence: AdvantageSequence, settings: AdvantageSettings): Float64Array {
  const { lossMask, rewards } = sequence;
  const values = sequence.values!;
  const { gamma, lambda } = settings;
  const turns = turnOfToken(sequence);
  const turnEnds = sequence.turnEnds!;
  const targets = turnTargets(sequence, settings);
  const positions = sampledPositions(lossMask);
  const ends = positions.map(t => turnEnds[turns[t]] === t);
  const own = advantagesOver({
    rewards: positions.map((t, k) => (ends[k] ? targets[turns[t]] : rewards[t])),
    values: positions.map(t => values[t]),
    gamma,
    lambdas: positions.map(() => lambda),
    ends,
  });
  const advantages = new Float64Array(lossMask.length);
  for (const [k, t] of positions.entries()) advantages[t] = own[k];
  return advantages;
}

/** Return of each turn at the high level. */
function turnTargets(sequence: AdvantageSequence, settings: AdvantageSettings): Float64Array {
  const { lambda, highLevelGamma } = settings;
  const turnEnds = sequence.turnEnds!;
  const values = turnEnds.map(end => sequence.values![end]);
  const rewards = turnEnds.map(end => sequence.rewards[end]);
  const lambdas = turnEnds.map(() => lambda);
  const { bootstrapValue } = sequence;
  return advantagesOver({ rewards, values, gamma: highLevelGamma, lambdas, bootstrapValue }).map(
    (a, k) => a + values[k],
  );
}
