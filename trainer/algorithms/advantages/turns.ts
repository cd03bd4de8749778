import { mean, populationStd, positionsBy, unbiasedStd } from '../statistics.ts';
import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { compared, episodesAmong, groupOutcomes, requireWholeEpisodes, STD_FLOOR } from './groups.ts';

/**
 * Number of the turn that each sampled token belongs to; −1 on masked tokens.
 * @throws RangeError when turn ends are missing, out of order, on masked tokens, or end before the last sampled token
 */
export function turnOfToken(sequence: AdvantageSequence): Int32Array {
  const { lossMask } = sequence;
  const ends = turnEnds(sequence);
  const turns = new Int32Array(lossMask.length).fill(-1);
  let turn = 0;
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    if (turn === ends.length) {
      throw new RangeError(
        `token ${t} was sampled after the last turn end ${ends.at(-1) ?? '(none)'}: every sampled token belongs to a turn`,
      );
    }
    turns[t] = turn;
    if (t === ends[turn]) turn++;
  }
  return turns;
}

/** The sequence's turn ends, checked. */
export function turnEnds(sequence: AdvantageSequence): readonly number[] {
  const ends = sequence.turnEnds;
  if (!ends)
    throw new RangeError('turn ends are missing: give the position of each turn’s last sampled token');
  ends.forEach((end, i) => {
    if (i > 0 && end <= ends[i - 1]) throw new RangeError(`turn ends must ascend, got ${ends.join(', ')}`);
    if (!sequence.lossMask[end]) throw new RangeError(`turn end ${end} is not a sampled token`);
  });
  return ends;
}

/** Σ of the rewards after the previous turn's end, up to and with each turn's end. */
export function turnRewards(sequence: AdvantageSequence): Float64Array {
  let start = 0;
  return Float64Array.from(turnEnds(sequence), end => {
    let sum = 0;
    for (let t = start; t <= end; t++) sum += sequence.rewards[t];
    start = end + 1;
    return sum;
  });
}

/** Reward-to-go of each turn: G_k = r_k + γ·G_(k+1). */
export function turnReturns(sequence: AdvantageSequence, gamma: number): Float64Array {
  const returns = turnRewards(sequence);
  for (let k = returns.length - 2; k >= 0; k--) returns[k] += gamma * returns[k + 1];
  return returns;
}

/** The value of its turn at every sampled token, 0 elsewhere. */
export function atTurns(sequence: AdvantageSequence, values: ArrayLike<number>): Float64Array {
  return Float64Array.from(turnOfToken(sequence), turn => (turn < 0 ? 0 : values[turn]));
}

const RETURN_STD_FLOOR = 1e-9;

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
    const scale = 1 / (populationStd(all) + RETURN_STD_FLOOR);
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
