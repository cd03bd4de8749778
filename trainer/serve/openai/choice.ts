import { randomUUID } from 'node:crypto';
import { type JsonObject, parseJson } from '../../../shared/json.ts';
import type { Generation, StreamedToken, TopLogProbs } from '../../generation/generation.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { LanguageModel } from './language-model.ts';
import { type ChoiceOptions, seedPlus } from './requests.ts';

type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Why a choice ended. */
export interface ChoiceEnd {
  readonly finishReason: FinishReason;
  /** The request's stop string or token that ended it; null for the model's own end, as in vLLM. */
  readonly stopReason: string | number | null;
}

/** The part of a choice since its last {@link Choice.take}. */
export interface ChoiceDelta {
  readonly text: string;
  readonly calls: readonly ToolCall[];
  readonly tokens: readonly StreamedToken[];
}

/** One response to a prompt, during and after its sampling. */
export class Choice {
  readonly index: number;
  readonly prompt: readonly number[];
  readonly #model: LanguageModel;
  readonly #options: ChoiceOptions;
  readonly #text: ResponseText;
  readonly #reader: ToolCallReader | null;
  #pending: StreamedToken[] = [];
  #count = 0;
  #called = false;
  #generation: Generation | null = null;
  #end: ChoiceEnd | null = null;

  /** @param tools the response may call tools */
  constructor(
    index: number,
    prompt: readonly number[],
    model: LanguageModel,
    options: ChoiceOptions,
    tools: boolean,
  ) {
    this.index = index;
    this.prompt = prompt;
    this.#model = model;
    this.#options = options;
    const { sampling, includeStop, skipSpecial } = options;
    this.#text = new ResponseText(model.tokenizer, {
      stopStrings: sampling.stopStrings ?? [],
      includeStop,
      skipSpecial,
    });
    this.#reader = tools ? new ToolCallReader() : null;
  }

  /** Tokens so far. */
  get count(): number {
    return this.#count;
  }

  /** Null during sampling, and until its last delta is taken. */
  get end(): ChoiceEnd | null {
    return this.#end;
  }

  /**
   * Samples the response.
   * @param wake called when {@link take} has something to return; without it everything is returned at the end
   */
  async run(signal: AbortSignal, wake?: () => void): Promise<void> {
    const { sampling, seed, n, grammar, logProbs, topLogProbs } = this.#options;
    const room = this.#model.maxSequenceLength - this.prompt.length;
    const generation = await this.#model.generate(
      {
        promptIds: this.prompt,
        sampling: { ...sampling, maxNewTokens: Math.min(sampling.maxNewTokens, room) },
        // The first choice has the seed of the request, so it equals the result of a request for one choice.
        seed: seedPlus(seed, this.index % n),
        ...(grammar === undefined ? {} : { grammar }),
        ...(logProbs ? { topLogProbs } : {}),
      },
      signal,
      wake && (token => this.#add(token, wake)),
    );
    if (wake === undefined) this.#pending = tokensOf(generation);
    this.#count = generation.tokenIds.length;
    this.#generation = generation;
    wake?.();
  }

  /** True if {@link take} has something to return. */
  get ready(): boolean {
    return this.#pending.length > 0 || (this.#generation !== null && this.#end === null);
  }

  /** The part since the last call. After the last token this sets {@link end}. */
  take(): ChoiceDelta {
    const tokens = this.#pending;
    this.#pending = [];
    let text = this.#text.push(tokens.map(({ tokenId }) => tokenId));
    const ended = this.#generation;
    if (ended !== null) text += this.#text.finish();
    const delta = this.#reader?.push(text) ?? { content: text, calls: [] };
    const rest = ended === null ? undefined : this.#reader?.finish();
    const calls = [...delta.calls, ...(rest?.calls ?? [])];
    this.#called ||= calls.length > 0;
    if (ended !== null) this.#end = this.#endOf(ended);
    return { text: delta.content + (rest?.content ?? ''), calls, tokens };
  }

  #add(token: StreamedToken, wake: () => void): void {
    this.#pending.push(token);
    this.#count++;
    wake();
  }

  #endOf({ finishReason, tokenIds }: Generation): ChoiceEnd {
    const { stop } = this.#text;
    if (finishReason !== 'stop' && stop === null) return { finishReason: 'length', stopReason: null };
    const last = tokenIds.at(-1);
    const own = last === undefined || this.#model.stopTokenIds.includes(last);
    const byToken = !own && this.#options.sampling.stopTokenIds.includes(last);
    return {
      finishReason: this.#called ? 'tool_calls' : 'stop',
      stopReason: stop ?? (byToken ? last : null),
    };
  }
}

function tokensOf({ tokenIds, logProbs, versions, top }: Generation): StreamedToken[] {
  return Array.from(tokenIds, (tokenId, i) => ({
    tokenId,
    logProb: logProbs[i],
    version: versions[i],
    ...(top === undefined ? {} : { top: top[i] as TopLogProbs }),
  }));
}

/** Decoded text of a byte sequence that ends in the middle of a character. */
const INCOMPLETE = '\uFFFD';

interface ResponseTextOptions {
  readonly stopStrings: readonly string[];
  /** Keeps the stop string that ended the text. */
  readonly includeStop: boolean;
  readonly skipSpecial: boolean;
}

/**
 * The text of tokens as they arrive. It only returns text that later tokens cannot change: characters with all their
 * bytes, and nothing that may begin a stop string. Text ends before the first stop string.
 */
export class ResponseText {
  /** The stop string that ended the text; null while none has. */
  stop: string | null = null;
  readonly #tokenizer: Pick<Tokenizer, 'decode'>;
  readonly #options: ResponseTextOptions;
  readonly #ids: number[] = [];
  /** Tokens before this one are not decoded again; those up to `#read` have been returned. */
  #context = 0;
  #read = 0;
  /** Decoded, but perhaps part of a stop string. */
  #held = '';

  constructor(tokenizer: Pick<Tokenizer, 'decode'>, options: ResponseTextOptions) {
    this.#tokenizer = tokenizer;
    this.#options = options;
  }

  /** Adds tokens; returns the text that is final. */
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

  /** Ends the response; returns the rest of its text. */
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

/** The string that is complete first in the text. */
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

/** A function that the model calls, in the form of OpenAI's API. */
interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    /** JSON text. */
    readonly arguments: string;
  };
}

/** A text split into content and tool calls. */
export interface ToolText {
  readonly content: string;
  readonly calls: readonly ToolCall[];
}

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const PYTHON_TAG = '<|python_tag|>';

/**
 * Reads tool calls from a growing response. Qwen2.5 and Qwen3 write each call as JSON between `<tool_call>` and
 * `</tool_call>`; Llama 3 writes only JSON with `name` and `parameters`, with `;` between calls. Everything else is
 * content.
 */
export class ToolCallReader {
  #rest = '';
  #started = false;
  /** The whole response may be a call in Llama's form. */
  #bare = false;

  /** Adds text; returns what is final. */
  push(text: string): ToolText {
    this.#rest += text;
    if (!this.#started) {
      const begun = this.#rest.trimStart();
      if (begun === '' || PYTHON_TAG.startsWith(begun)) return { content: '', calls: [] };
      this.#started = true;
      this.#bare = begun.startsWith('{') || begun.startsWith(PYTHON_TAG);
    }
    return this.#bare ? { content: '', calls: [] } : this.#read(false);
  }

  /** Ends the response. */
  finish(): ToolText {
    if (!this.#bare) return this.#read(true);
    const calls = bareCalls(this.#rest);
    return calls === null ? { content: this.#rest, calls: [] } : { content: '', calls };
  }

  #read(last: boolean): ToolText {
    let content = '';
    const calls: ToolCall[] = [];
    for (;;) {
      const open = this.#rest.indexOf(OPEN);
      if (open < 0) break;
      const close = this.#rest.indexOf(CLOSE, open);
      const said = this.#rest.slice(0, open);
      if (close < 0 && !last) {
        content += said;
        this.#rest = this.#rest.slice(open);
        return { content, calls };
      }
      const end = close < 0 ? this.#rest.length : close + CLOSE.length;
      const call = parseCall(this.#rest.slice(open + OPEN.length, close < 0 ? end : close));
      content += call === null ? this.#rest.slice(0, end) : said;
      if (call !== null) calls.push(call);
      this.#rest = this.#rest.slice(end);
    }
    const held = last ? 0 : overlap(this.#rest, OPEN);
    content += this.#rest.slice(0, this.#rest.length - held);
    this.#rest = this.#rest.slice(this.#rest.length - held);
    return { content, calls };
  }
}

/** Length of the longest suffix of a text that is a prefix of the word. */
function overlap(text: string, word: string): number {
  for (let length = Math.min(text.length, word.length - 1); length > 0; length--) {
    if (text.endsWith(word.slice(0, length))) return length;
  }
  return 0;
}

/** The calls of a response in Llama's form; null if it is not one. */
function bareCalls(text: string): ToolCall[] | null {
  const trimmed = text.trim();
  const body = trimmed.startsWith(PYTHON_TAG) ? trimmed.slice(PYTHON_TAG.length) : trimmed;
  const whole = parseCall(body);
  if (whole !== null) return [whole];
  const calls = body.split(/;\s*(?=\{)/).map(parseCall);
  return calls.every(call => call !== null) ? calls : null;
}

function parseCall(text: string): ToolCall | null {
  const value = (parseJson(text) ?? null) as JsonObject | null;
  if (typeof value !== 'object' || value === null || typeof value.name !== 'string') return null;
  const given = value.arguments ?? value.parameters ?? {};
  if (typeof given !== 'object' && typeof given !== 'string') return null;
  return {
    id: `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`,
    type: 'function',
    function: { name: value.name, arguments: typeof given === 'string' ? given : JSON.stringify(given) },
  };
}
