/** Text of tokens, as a tokenizer decodes them. */
export type Decode = (tokenIds: Int32Array) => string;

/** Extra tokens to decode beyond the longest string: a decoder may treat the first ones specially. */
const MARGIN_TOKENS = 4;

/** Finds strings that end a response, even across tokens. */
export class StopStrings {
  readonly #strings: readonly string[];
  readonly #decode: Decode;
  readonly #tail: number;

  /** @throws RangeError for an empty string, or without a decoder */
  constructor(strings: readonly string[], decode: Decode | undefined) {
    if (decode === undefined) {
      throw new RangeError(
        'stop strings need a tokenizer: give the policy the files of one, or name stop tokens instead',
      );
    }
    if (strings.includes('')) throw new RangeError('a stop string must not be empty');
    this.#strings = strings;
    this.#decode = decode;
    // A token is at least one byte of text.
    this.#tail = Math.max(...strings.map(text => Buffer.byteLength(text))) + MARGIN_TOKENS;
  }

  /** True if the text of the last tokens contains one of the strings; called after every token. */
  isIn(tokenIds: Int32Array): boolean {
    const text = this.#decode(tokenIds.subarray(Math.max(0, tokenIds.length - this.#tail)));
    return this.#strings.some(string => text.includes(string));
  }
}
