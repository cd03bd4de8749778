import { positionsBy } from '../../statistics.ts';
import type { AdvantageEstimator } from '../estimator.ts';
import { episodesAmong } from '../groups.ts';
import { atTurns, turnOfToken, turnReturns } from '../turns.ts';

/**
 * Leave-one-out by turns: A_k = G_k − mean of G_k over the group's other episodes that reached turn k, G_k = r_k +
 * γ·G_(k+1); the baseline is 0 where no other did. Every token of a turn has its turn's advantage. A turn's baseline
 * depends only on other episodes. With γ = 1 and an aggregation of constant weights the expected gradient is therefore
 * exact for groups of any size, even where the policy decides how many turns it plays. Centering single rewards by
 * their turn and adding them up is not exact: an episode then subtracts as many baselines as it has turns.
 */
export const turnLoo: AdvantageEstimator = {
  needs: ['groups', 'turnEnds', 'states'],
  estimate(sequences, { gamma }) {
    const returns = sequences.map(sequence => turnReturns(sequence, gamma));
    const advantages = sequences.map(sequence => new Float64Array(sequence.lossMask.length));
    for (const members of positionsBy(sequences, ({ groupId }) => groupId).values()) {
      const episodes = episodesAmong(sequences, members);
      const longest = Math.max(...members.map(position => returns[position].length));
      const totals = new Float64Array(longest);
      const counts = new Float64Array(longest);
      for (const [first] of episodes) {
        returns[first].forEach((value, turn) => {
          totals[turn] += value;
          counts[turn]++;
        });
      }
      for (const own of episodes) {
        const counted = returns[own[0]];
        const baseline = (turn: number) =>
          counts[turn] > 1 ? (totals[turn] - counted[turn]) / (counts[turn] - 1) : 0;
        for (const position of own) {
          const turns = turnOfToken(sequences[position]);
          advantages[position] = Float64Array.from(turns, k =>
            k < 0 ? 0 : returns[position][k] - baseline(k),
          );
        }
      }
    }
    return { advantages, returns: sequences.map((sequence, i) => atTurns(sequence, returns[i])) };
  },
};
