import type { JsonObject } from '../../../../shared/json.ts';
import type { ChatRenderOptions } from '../../../models/tokenizer/chat-template.ts';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.ts';

/** Longest text that a template may make, in UTF-16 units: twice the largest body of a request. */
const MAX_RENDERED = 8 * 2 ** 20;
/** Characters of a text that are looked at first, for each token that there may be. */
const CHARACTERS_A_TOKEN = 8;

/** Work on texts with one tokenizer. */
export type TextJob =
  /** A text, and how many tokens of it are of use. Replied with an Int32Array, or null where there are far too many. */
  | { readonly kind: 'encode'; readonly text: string; readonly most: number }
  /** Texts that are only tried: replied with null. */
  | { readonly kind: 'try'; readonly texts: readonly string[] }
  /** Messages for the chat template. Replied with the text. */
  | { readonly kind: 'render'; readonly messages: readonly JsonObject[]; readonly options: ChatRenderOptions }
  /** Replied with the text. */
  | { readonly kind: 'decode'; readonly ids: Int32Array };

/**
 * The token ids of a text; undefined for a long text with a beginning that alone has more than twice `most`. What follows may
 * still merge with the end of a beginning, but never with half of it.
 */
export function encodeUpTo(
  tokenizer: Pick<Tokenizer, 'encode'>,
  text: string,
  most: number,
): number[] | undefined {
  for (let length = CHARACTERS_A_TOKEN * most; length < text.length; length *= 4) {
    if (tokenizer.encode(text.slice(0, length)).length > 2 * most) return undefined;
  }
  return tokenizer.encode(text);
}

/** Does a job. The comment of its kind names the result. @throws Error of the tokenizer or template */
export function perform(job: TextJob, tokenizer: Tokenizer): unknown {
  switch (job.kind) {
    case 'encode': {
      const ids = encodeUpTo(tokenizer, job.text, job.most);
      return ids === undefined ? null : Int32Array.from(ids);
    }
    case 'try':
      for (const text of job.texts) tokenizer.encode(text);
      return null;
    case 'decode':
      return tokenizer.decode(job.ids);
    case 'render': {
      const text = tokenizer.chatTemplate!.render(job.messages, job.options);
      if (text.length <= MAX_RENDERED) return text;
      throw new RangeError(`it makes a text of ${text.length} characters; ${MAX_RENDERED} are the most`);
    }
  }
}
