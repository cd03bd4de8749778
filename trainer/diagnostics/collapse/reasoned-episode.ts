import { parseResponse } from '../../../shared/response.ts';
import { type Episode, samplesOf, type Turn } from '../../rollout/episode.ts';
import type { ReasonedEpisode, ReasonedTurn } from './collapse-samples.ts';

/** The measured part of a response. */
export type ResponsePart = 'thought' | 'actions';

const CLOSING_TAGS: { readonly [part in ResponsePart]: string } = {
  thought: '</think>',
  actions: '</answer>',
};
const NOTHING = new Int32Array(0);

/**
 * An episode's turns as prompt X, up to the opening tag with which responses are primed, and reasoning Z: the sampled tokens with
 * text that ends before the closing tag, without white space at either end. A turn without it, or with a response that is
 * not well formed, has none.
 * @param decode of the tokenizer that the episode was played with
 */
export function reasonedEpisode(
  episode: Episode,
  decode: (ids: ArrayLike<number>) => string,
  part: ResponsePart,
): ReasonedEpisode {
  const samples = samplesOf(episode);
  return {
    groupId: episode.groupId,
    turns: episode.turns.map(turn => reasonedTurn(turn, samples[turn.sample ?? 0].tokenIds, decode, part)),
  };
}

function reasonedTurn(
  { tokens: [start, end], rawResponse }: Turn,
  tokenIds: Int32Array,
  decode: (ids: ArrayLike<number>) => string,
  part: ResponsePart,
): ReasonedTurn {
  const prompt = tokenIds.subarray(0, start);
  const { thinking, actions } = parseResponse(rawResponse, { think: part === 'thought', maxActions: 1 });
  const present = part === 'thought' ? thinking !== '' : actions.length > 0;
  if (!present) return { prompt, reasoning: NOTHING };
  const response = tokenIds.subarray(start, end);
  const within = response.subarray(0, tokensBefore(CLOSING_TAGS[part], response, decode));
  return { prompt, reasoning: withoutSpace(within, decode) };
}

/** Number of tokens that end before the text begins, where tokens may be parts of it; 0 where the text is missing. */
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

function withoutSpace(ids: Int32Array, decode: (ids: ArrayLike<number>) => string): Int32Array {
  const isSpace = (id: number) => decode([id]).trim() === '';
  const first = ids.findIndex(id => !isSpace(id));
  const last = ids.findLastIndex(id => !isSpace(id));
  return first === -1 ? NOTHING : ids.subarray(first, last + 1);
}
