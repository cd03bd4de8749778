import { parseResponse } from '../../shared/response.ts';
import { type Episode, samplesOf, type Turn } from '../rollout/episode.ts';
import type { ReasonedEpisode, ReasoningPair } from './collapse-plan.ts';

const CLOSING_TAG = '</think>';
const NO_REASONING = new Int32Array(0);

/**
 * An episode's turns as prompt X, up to the opening think tag with which responses are primed, and reasoning Z, the tokens
 * before the closing one. A turn without it, or with an answer that is not well formed, has no reasoning.
 * @param decode of the tokenizer that the episode was played with
 */
export function reasonedEpisode(
  episode: Episode,
  decode: (ids: ArrayLike<number>) => string,
): ReasonedEpisode {
  const samples = samplesOf(episode);
  return {
    groupId: episode.groupId,
    turns: episode.turns.map(turn => reasonedTurn(turn, samples[turn.sample ?? 0].tokenIds, decode)),
  };
}

function reasonedTurn(
  { tokens: [start, end], rawResponse }: Turn,
  tokenIds: Int32Array,
  decode: (ids: ArrayLike<number>) => string,
): Pick<ReasoningPair, 'prompt' | 'reasoning'> {
  const prompt = tokenIds.subarray(0, start);
  const { thinking } = parseResponse(rawResponse, { think: true, maxActions: 1 });
  if (thinking === '') return { prompt, reasoning: NO_REASONING };
  const response = tokenIds.subarray(start, end);
  return { prompt, reasoning: response.subarray(0, tokensBefore(CLOSING_TAG, response, decode)) };
}

/** How many tokens end before the text begins, where tokens may be parts of it; 0 where the text is missing. */
function tokensBefore(text: string, ids: Int32Array, decode: (ids: ArrayLike<number>) => string): number {
  const limit = decode(ids).indexOf(text);
  let [fit, tooMany] = [0, ids.length + 1];
  while (tooMany - fit > 1) {
    const middle = (fit + tooMany) >> 1;
    if (decode(ids.subarray(0, middle)).length <= limit) fit = middle;
    else tooMany = middle;
  }
  return fit;
}
