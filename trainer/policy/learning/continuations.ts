import type { ContinuationRequest, Policy, Score, ScoreRequest } from '../policy.ts';
import { checkTokens } from './sequence-checks.ts';

/**
 * Scores continuations as sequences that begin with their prompt. Packed rows share that beginning, so a pass over R
 * continuations of N prompts computes about N · Σ|x| + N · Σ|z| tokens instead of Σ Σ (|x| + |z|).
 * @param score log-probabilities of sequences
 * @returns the sums over tokens, an array for each request
 * @throws RangeError for requests that do not fit the policy
 */
export async function scoreContinuations(
  requests: readonly ContinuationRequest[],
  policy: Pick<Policy, 'maxSequenceLength' | 'vocabularySize'>,
  score: (sequences: ScoreRequest[]) => Promise<readonly Pick<Score, 'logProbs'>[]>,
): Promise<Float64Array[]> {
  requests.forEach((request, index) => {
    checkContinuations(request, policy, `request ${index}`);
  });
  const sequences = requests.flatMap(({ prompt, continuations }) =>
    continuations.map(continuation => {
      const tokenIds = new Int32Array(prompt.length + continuation.length);
      tokenIds.set(prompt);
      tokenIds.set(continuation, prompt.length);
      return { tokenIds, lossMask: new Uint8Array(tokenIds.length).fill(1, prompt.length) };
    }),
  );
  const scores = (await score(sequences)).values();
  return requests.map(({ continuations }) =>
    Float64Array.from(continuations, () => scores.next().value!.logProbs.reduce((sum, x) => sum + x, 0)),
  );
}

/** @throws RangeError when a prompt or a continuation is empty, or both together do not fit the policy */
function checkContinuations(
  { prompt, continuations }: ContinuationRequest,
  policy: { readonly maxSequenceLength: number; readonly vocabularySize: number },
  what: string,
): void {
  const { maxSequenceLength, vocabularySize } = policy;
  if (prompt.length === 0) throw new RangeError(`${what} has an empty prompt; it must have a token`);
  checkTokens(prompt, vocabularySize, `the prompt of ${what}`);
  continuations.forEach((continuation, index) => {
    const { length } = continuation;
    if (length === 0 || prompt.length + length > maxSequenceLength) {
      throw new RangeError(
        `continuation ${index} of ${what} has ${length} tokens behind ${prompt.length} of the prompt; it must have at least 1, and both together at most ${maxSequenceLength} (maxSequenceLength)`,
      );
    }
    checkTokens(continuation, vocabularySize, `continuation ${index} of ${what}`);
  });
}
