import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { overlap } from './tools.ts';

/** Decoded text of a byte sequence that ends in the middle of a character. */
const INCOMPLETE = '\uFFFD';

export interface ResponseTextOptions {
  readonly stopStrings: readonly string[];
  /** Leaves the stop string that ended the text in it. */
  readonly includeStop: boolean;
  readonly skipSpecial: boolean;
}

/**
 * The text of tokens as they come. Only what later tokens cannot change is returned: characters with all their bytes, and
 * nothing that may be the beginning of a stop string. Text ends before the first stop string.
 */
export class ResponseText {
  /** The stop string that ended the text; null while none has. */
  stop: string | null = null;
  readonly #tokenizer: Pick<Tokenizer, 'decode'>;
  readonly #options: ResponseTextOptions;
  readonly #ids: number[] = [];
  /** Tokens before this one are not decoded again; those up to `#read` have been given. */
  #context = 0;
  #read = 0;
  /** Decoded, but perhaps part of a stop string. */
  #held = '';

  constructor(tokenizer: Pick<Tokenizer, 'decode'>, options: ResponseTextOptions) {
    this.#tokenizer = tokenizer;
    this.#options = options;
  }

  /** Takes more tokens; gives what text is certain by now. */
  push(tokenIds: Iterable<number>): string {
    this.#ids.push(...tokenIds);
    if (this.stop !== null) return '';
    const known = this.#decode(this.#context, this.#read);
    const text = this.#decode(this.#context, this.#ids.length);
    if (text.endsWith(INCOMPLETE) || text.length <= known.length) return '';
    this.#context = this.#read;
    this.#read = this.#ids.length;
    return this.#certain(text.slice(known.length), false);
  }

  /** Ends the response; gives the rest of its text. */
  finish(): string {
    if (this.stop !== null) return '';
    const known = this.#decode(this.#context, this.#read);
    const text = this.#decode(this.#context, this.#ids.length);
    return this.#certain(text.slice(known.length), true);
  }

  #decode(from: number, to: number): string {
    return this.#tokenizer.decode(this.#ids.slice(from, to), { skipSpecial: this.#options.skipSpecial });
  }

  #certain(more: string, last: boolean): string {
    const { stopStrings, includeStop } = this.#options;
    const text = this.#held + more;
    const found = firstOf(text, stopStrings);
    if (found !== null) {
      this.stop = found.stop;
      this.#held = '';
      return text.slice(0, includeStop ? found.at + found.stop.length : found.at);
    }
    const held = last ? 0 : Math.max(0, ...stopStrings.map(stop => overlap(text, stop)));
    this.#held = text.slice(text.length - held);
    return text.slice(0, text.length - held);
  }
}

/** The string that is whole in the text first. */
function firstOf(
  text: string,
  strings: readonly string[],
): { readonly at: number; readonly stop: string } | null {
  let first: { readonly at: number; readonly stop: string } | null = null;
  for (const stop of strings) {
    const at = text.indexOf(stop);
    if (at < 0) continue;
    if (first === null || at + stop.length < first.at + first.stop.length) first = { at, stop };
  }
  return first;
}
