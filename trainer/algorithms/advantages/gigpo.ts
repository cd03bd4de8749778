import { mean, positionsBy, unbiasedStd } from '../statistics.ts';
import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { compared, groupOutcomes, requireWholeEpisodes, STD_FLOOR } from './groups.ts';
import { turnOfToken, turnReturns } from './turns.ts';

/**
 * Group-in-group policy optimization: credit for episodes and, inside them, for steps taken from equal states.
 *
 * A = A_episode + w·A_step. A_episode compares the episode's return within its group as GRPO does. A_step compares the
 * turn's discounted return G_k = r_k + γ·G_(k+1) among all turns of the group that began in the same state; a state
 * met once has step advantage 0. `stdNormalize: false` subtracts means only.
 *
 * Needs whole episodes: one sequence per episode (context mode `full`).
 *
 * Source: Feng et al., 2025 (GiGPO).
 */
export const gigpo: AdvantageEstimator = {
  needs: ['groups', 'turnEnds', 'states'],
  estimate(sequences, settings) {
    const groups = groupOutcomes(sequences);
    const steps = stepAdvantages(sequences, settings);
    const advantages = sequences.map((sequence, i) => {
      const episode = compared(groups[i], settings.stdNormalize);
      const turns = turnOfToken(sequence);
      return Float64Array.from(turns, k => (k < 0 ? 0 : episode + settings.stepWeight * steps[i][k]));
    });
    return { advantages, returns: advantages };
  },
};

function stepAdvantages(
  sequences: readonly AdvantageSequence[],
  settings: AdvantageSettings,
): Float64Array[] {
  requireWholeEpisodes('gigpo', sequences);
  const steps = sequences.flatMap((sequence, i) => {
    const returns = turnReturns(sequence, settings.gamma);
    const { states = [], groupId } = sequence;
    if (states.length !== returns.length) {
      throw new RangeError(
        `gigpo needs the state before each turn, got ${states.length} for ${returns.length}`,
      );
    }
    return Array.from(returns, (value, turn) => ({ sequence: i, turn, groupId, state: states[turn], value }));
  });
  const advantages = sequences.map(sequence => new Float64Array(sequence.turnEnds!.length));
  const clusters = positionsBy(steps, step => JSON.stringify([step.groupId, step.state]));
  for (const positions of clusters.values()) {
    if (positions.length === 1) continue;
    const values = positions.map(position => steps[position].value);
    const center = mean(values);
    const scale = settings.stdNormalize ? 1 / (unbiasedStd(values) + STD_FLOOR) : 1;
    for (const position of positions) {
      const { sequence, turn, value } = steps[position];
      advantages[sequence][turn] = (value - center) * scale;
    }
  }
  return advantages;
}
