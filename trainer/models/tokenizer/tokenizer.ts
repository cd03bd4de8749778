import type { ChatTemplate } from './chat-template.ts';

/** Text to token ids and back. */
export interface Tokenizer {
  /** Greatest id + 1. A model's vocabulary may be padded to more. */
  readonly vocabularySize: number;
  /** Most UTF-16 units of text that one token covers; infinite where an unknown text of any length is one token. */
  readonly longestToken: number;
  readonly eosTokenId?: number;
  readonly bosTokenId?: number;
  readonly padTokenId?: number;
  /** Template that formats messages as text; absent where the tokenizer has none. */
  readonly chatTemplate?: ChatTemplate;
  /** Ids of the unchanged text, without added tokens in front or behind. */
  encode(text: string): number[];
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;
  /** The id of one token by its exact text. */
  idOf(token: string): number | undefined;
  /** The files that save this tokenizer in the Hugging Face layout, by name. */
  readonly files: { readonly [name: string]: string };
}

export interface DecodeOptions {
  /** True to leave special tokens (end of text, padding, chat markers) out; false when absent. */
  readonly skipSpecial?: boolean;
}

/** Contents of special tokens by their role in `tokenizer_config.json`. */
export type SpecialTokenNames = {
  readonly bos_token?: string;
  readonly eos_token?: string;
  readonly pad_token?: string;
  readonly unk_token?: string;
};
