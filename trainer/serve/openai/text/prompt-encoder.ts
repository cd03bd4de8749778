import type { JsonObject } from '../../../../shared/json.ts';
import type { ChatRenderOptions } from '../../../models/tokenizer/chat-template.ts';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.ts';
import { TextProcess } from './text-process.ts';

/** Longest text, in UTF-16 units, that counts as short: some ten milliseconds. */
export const LONGEST_SHORT = 8192;
/** Expected time of a job for each character, to order jobs and to limit them. */
const MS_A_CHARACTER = 0.001;

/**
 * Tokenizes the prompts of many clients, and renders their messages by the chat template. A megabyte takes seconds, and the
 * patterns and templates of a stranger's model may never end, so all of it is done in two processes with limits: one for short
 * texts, which never wait for long ones, and one for long texts, which starts with the first of them.
 */
export class PromptEncoder {
  readonly #short: TextProcess;
  readonly #long: TextProcess;

  constructor({ files }: Pick<Tokenizer, 'files'>) {
    this.#short = new TextProcess(files);
    this.#long = new TextProcess(files);
  }

  /**
   * The token ids of a text; undefined for a long text with a beginning that alone has more than twice `most`.
   * @param signal aborted when its result is of no use any more
   * @throws the signal's reason; TextLimitError; Error when a process breaks or the encoder is closed
   */
  async encode(text: string, most: number, signal?: AbortSignal): Promise<readonly number[] | undefined> {
    const ids = await this.#by(text.length).run(
      { kind: 'encode', text, most },
      MS_A_CHARACTER * text.length,
      signal,
    );
    return ids === null ? undefined : Array.from(ids as Int32Array);
  }

  /** Encodes texts that others will encode without a limit. @throws as {@link encode} */
  async tryTexts(texts: readonly string[], signal?: AbortSignal): Promise<void> {
    const length = texts.reduce((sum, text) => sum + text.length, 0);
    await this.#by(length).run({ kind: 'try', texts }, MS_A_CHARACTER * length, signal);
  }

  /**
   * The text of messages by the tokenizer's chat template, which it must have.
   * @throws as {@link encode}; TextJobError for messages that the template refuses
   */
  async render(
    messages: readonly JsonObject[],
    options: ChatRenderOptions,
    signal?: AbortSignal,
  ): Promise<string> {
    const { length } = JSON.stringify([messages, options]);
    const rendered = this.#by(length).run(
      { kind: 'render', messages, options },
      MS_A_CHARACTER * length,
      signal,
    );
    return (await rendered) as string;
  }

  /** The text of token ids. @throws as {@link encode} */
  async decode(ids: readonly number[], signal?: AbortSignal): Promise<string> {
    const job = { kind: 'decode', ids: Int32Array.from(ids) } as const;
    return (await this.#by(ids.length).run(job, MS_A_CHARACTER * ids.length, signal)) as string;
  }

  async close(): Promise<void> {
    await Promise.all([this.#short.close(), this.#long.close()]);
  }

  #by(length: number): TextProcess {
    return length <= LONGEST_SHORT ? this.#short : this.#long;
  }
}
