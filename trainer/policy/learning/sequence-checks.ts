import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { ScoreRequest } from '../policy.ts';

/** @throws RangeError when a sequence does not fit the policy, or its arrays do not fit each other */
export function checkSequence(
  sequence: ScoreRequest | TrainingSequence,
  policy: { readonly maxSequenceLength: number; readonly vocabularySize: number },
  what: string,
): void {
  const { tokenIds, lossMask } = sequence;
  const { maxSequenceLength, vocabularySize } = policy;
  if (tokenIds.length < 2 || tokenIds.length > maxSequenceLength) {
    throw new RangeError(
      `${what} has ${tokenIds.length} tokens; it must have 2 to ${maxSequenceLength} (maxSequenceLength)`,
    );
  }
  for (const [name, value] of Object.entries(sequence)) {
    if (ArrayBuffer.isView(value) && (value as Int32Array).length !== tokenIds.length) {
      throw new RangeError(
        `${what}: ${name} has ${(value as Int32Array).length} entries for ${tokenIds.length} tokens`,
      );
    }
  }
  if (lossMask[0]) throw new RangeError(`${what}: the loss mask trains position 0, which nothing predicts`);
  checkTokens(tokenIds, vocabularySize, what);
  if (sequence.targets !== undefined) checkTokens(sequence.targets, vocabularySize, `the targets of ${what}`);
}

/** @throws RangeError when a token id is outside the vocabulary */
export function checkTokens(tokenIds: Int32Array, vocabularySize: number, what: string): void {
  for (let t = 0; t < tokenIds.length; t++) {
    if (!(tokenIds[t] >= 0 && tokenIds[t] < vocabularySize)) {
      throw new RangeError(
        `${what}: token id ${tokenIds[t]} at ${t} is outside the vocabulary of ${vocabularySize}`,
      );
    }
  }
}

/** @throws RangeError */
export function checkTemperature(temperature: number): void {
  if (!(temperature > 0) || !Number.isFinite(temperature)) {
    throw new RangeError(
      `temperature must be above 0 where tokens are scored or trained on, got ${temperature}`,
    );
  }
}

/** @throws RangeError when the trained tokens of a sequence differ in their advantages, which a loss per sequence can't use */
export function checkOneAdvantage({ lossMask, advantages }: TrainingSequence, index: number): void {
  const first = lossMask.indexOf(1);
  for (let t = first + 1; first >= 0 && t < lossMask.length; t++) {
    if (lossMask[t] && advantages[t] !== advantages[first]) {
      throw new RangeError(
        `training sequence ${index}: the advantage is ${advantages[first]} at token ${first} and ${advantages[t]} at ${t}, but the loss takes one per sequence: choose an advantage that is the same for a whole episode, such as grpo`,
      );
    }
  }
}

/** True if the sequences have targets for a value head. @throws RangeError when only some of the sequences have returns */
export function haveReturns(sequences: readonly TrainingSequence[]): boolean {
  const count = sequences.filter(({ returns }) => returns !== undefined).length;
  if (count === 0 || count === sequences.length) return count > 0;
  throw new RangeError(
    `${count} of ${sequences.length} training sequences have returns: give them to all, or to none to leave the value head as it is`,
  );
}
