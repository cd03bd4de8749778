import { mean, unbiasedStd } from '../../statistics.ts';
import type { AdvantageEstimator, VineTurns } from '../estimator.ts';
import { atTurns } from '../turns.ts';

/**
 * Advantages by the value of the history before and after each turn: A = r + V̂(after) − V̂(before), V̂ the mean return of other
 * continuations, 0 at the end. Turns between two values share what was earned there. Exact for any number of continuations, since
 * the episode's own future is in no V̂ before it.
 *
 * Source: VinePPO (arXiv 2410.01679), `_compute_step_advantages`.
 */
export const vine: AdvantageEstimator = {
  needs: ['vine'],
  estimate(sequences) {
    const episodes = new Map(sequences.map(({ episodeId, vine }, i) => [episodeId ?? i, vine!]));
    const credits = new Map([...episodes].map(([id, turns]) => [id, turnAdvantages(turns)]));
    const advantages = sequences.map((sequence, i) => {
      const own = credits.get(sequence.episodeId ?? i)!;
      return atTurns(
        sequence,
        sequence.vine!.trained.map(turn => own[turn]),
      );
    });
    return { advantages, returns: advantages, metrics: valueMetrics([...episodes.values()]) };
  },
};

/** @throws RangeError where the arrays differ in length, or the first turn has no value */
function turnAdvantages({ rewards, continuations }: VineTurns): number[] {
  if (continuations.length !== rewards.length)
    throw new RangeError(
      `vine needs the continuations of each turn, got ${continuations.length} for ${rewards.length}`,
    );
  if (continuations[0]?.length === 0)
    throw new RangeError('vine needs continuations from the start of an episode, got none');
  const advantages = new Array<number>(rewards.length);
  let after = 0;
  let earned = 0;
  let end = rewards.length;
  for (let turn = rewards.length - 1; turn >= 0; turn--) {
    earned += rewards[turn];
    if (continuations[turn].length === 0) continue;
    const before = mean(continuations[turn]);
    advantages.fill(earned + after - before, turn, end);
    [after, earned, end] = [before, 0, turn];
  }
  return advantages;
}

/** Values over all histories that have one, against the returns that followed in the episodes. */
function valueMetrics(episodes: readonly VineTurns[]): Record<string, number> {
  const values: number[] = [];
  const returns: number[] = [];
  let distinct = 0;
  for (const { rewards, continuations } of episodes) {
    let following = 0;
    for (let turn = rewards.length - 1; turn >= 0; turn--) {
      following += rewards[turn];
      const own = continuations[turn];
      if (own.length === 0) continue;
      values.push(mean(own));
      returns.push(following);
      distinct += new Set(own).size / own.length;
    }
  }
  if (values.length < 2) return {};
  const spread = unbiasedStd(returns) ** 2;
  const left = unbiasedStd(returns.map((value, i) => value - values[i])) ** 2;
  return {
    'vine/value_mean': mean(values),
    'vine/value_std': unbiasedStd(values),
    'vine/unique_ratio': distinct / values.length,
    'vine/explained': spread === 0 ? 0 : 1 - left / spread,
  };
}
