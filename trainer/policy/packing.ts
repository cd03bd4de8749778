import type { TrainingSequence } from './policy.ts';

/**
 * Puts short sequences side by side into as few rows as first-fit decreasing finds, none longer than `maxLength` unless a
 * sequence alone is. Segments tell them apart, so that none sees another and the loss stays what it was.
 */
export function packSequences(sequences: readonly TrainingSequence[], maxLength: number): TrainingSequence[] {
  const order = sequences.toSorted((a, b) => b.tokenIds.length - a.tokenIds.length);
  const rows: { readonly members: TrainingSequence[]; length: number }[] = [];
  for (const sequence of order) {
    const { length } = sequence.tokenIds;
    const row = rows.find(one => one.length + length <= maxLength);
    if (row) {
      row.members.push(sequence);
      row.length += length;
    } else rows.push({ members: [sequence], length });
  }
  return rows.map(({ members }) => (members.length === 1 ? members[0] : joined(members)));
}

function joined(members: readonly TrainingSequence[]): TrainingSequence {
  const length = members.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const row = {
    tokenIds: new Int32Array(length),
    mask: new Uint8Array(length),
    logProbs: new Float32Array(length),
    advantages: new Float32Array(length),
    segments: new Int32Array(length),
  };
  let start = 0;
  members.forEach(({ tokenIds, mask, logProbs, advantages }, segment) => {
    row.tokenIds.set(tokenIds, start);
    row.mask.set(mask, start);
    row.logProbs.set(logProbs, start);
    row.advantages.set(advantages, start);
    row.segments.fill(segment, start, start + tokenIds.length);
    start += tokenIds.length;
  });
  return row;
}
