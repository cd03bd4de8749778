import type { AdvantageSequence } from './estimator.ts';

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
