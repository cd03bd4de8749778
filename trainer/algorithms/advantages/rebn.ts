import { mean, populationStd } from '../statistics.ts';
import type { AdvantageEstimator } from './estimator.ts';
import { atTurns, turnReturns } from './turns.ts';

const STD_FLOOR = 1e-9;

/**
 * Return batch normalization: each turn's discounted return G_k = r_k + γ·G_(k+1), normalized over all turns of the
 * batch, A = (G − mean) / (std + 1e-9) with the population std; every token of a turn has its turn's advantage.
 * Needs no groups and no value head.
 *
 * Source: Liu et al., 2025 (GEM).
 */
export const rebn: AdvantageEstimator = {
  needs: ['turnEnds'],
  estimate(sequences, { gamma }) {
    const perTurn = sequences.map(sequence => turnReturns(sequence, gamma));
    const all = perTurn.flatMap(returns => Array.from(returns));
    const center = mean(all);
    const scale = 1 / (populationStd(all) + STD_FLOOR);
    return {
      advantages: sequences.map((sequence, i) =>
        atTurns(
          sequence,
          perTurn[i].map(g => (g - center) * scale),
        ),
      ),
      returns: sequences.map((sequence, i) => atTurns(sequence, perTurn[i])),
    };
  },
};
