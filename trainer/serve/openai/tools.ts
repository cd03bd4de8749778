import { randomUUID } from 'node:crypto';
import type { JsonObject } from '../../../shared/json.ts';

/** A function that the model calls, in the form of OpenAI's API. */
export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    /** JSON text. */
    readonly arguments: string;
  };
}

/** A text split into what was said and what was called. */
export interface ToolText {
  readonly content: string;
  readonly calls: readonly ToolCall[];
}

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const PYTHON_TAG = '<|python_tag|>';

/**
 * Reads tool calls from a response as it grows. Qwen2.5 and Qwen3 write each call as JSON between `<tool_call>` and
 * `</tool_call>`; Llama 3 writes nothing but JSON with `name` and `parameters`, several parted by `;`. What is no call is
 * content.
 */
export class ToolCallReader {
  #rest = '';
  #started = false;
  /** The whole response may be a call in Llama's form. */
  #bare = false;

  /** Takes more text; gives what is certain by now. */
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

/** Length of the longest end of a text that begins the word. */
export function overlap(text: string, word: string): number {
  for (let length = Math.min(text.length, word.length - 1); length > 0; length--) {
    if (text.endsWith(word.slice(0, length))) return length;
  }
  return 0;
}

/** The calls of a response in Llama's form; null where it is none. */
function bareCalls(text: string): ToolCall[] | null {
  const trimmed = text.trim();
  const body = trimmed.startsWith(PYTHON_TAG) ? trimmed.slice(PYTHON_TAG.length) : trimmed;
  const whole = parseCall(body);
  if (whole !== null) return [whole];
  const calls = body.split(/;\s*(?=\{)/).map(parseCall);
  return calls.every(call => call !== null) ? calls : null;
}

function parseCall(text: string): ToolCall | null {
  let value: JsonObject | null;
  try {
    value = JSON.parse(text) as JsonObject | null;
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || typeof value.name !== 'string') return null;
  const given = value.arguments ?? value.parameters ?? {};
  if (typeof given !== 'object' && typeof given !== 'string') return null;
  return {
    id: `call_${randomUUID().replaceAll('-', '').slice(0, 24)}`,
    type: 'function',
    function: { name: value.name, arguments: typeof given === 'string' ? given : JSON.stringify(given) },
  };
}
