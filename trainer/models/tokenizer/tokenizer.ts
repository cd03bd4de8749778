import { Template } from '@huggingface/jinja';
import type { Json, JsonObject } from '../../../shared/json.ts';

/** Text to token ids and back. */
export interface Tokenizer {
  /** Greatest id + 1. A model's vocabulary may be padded to more. */
  readonly vocabularySize: number;
  /** Most UTF-16 units of text that one token covers; infinite where an unknown text of any length is one token. */
  readonly longestToken: number;
  /** Tokens that {@link encode} finds before all others, the longest at each place. */
  readonly words: ReadonlySet<number>;
  readonly eosTokenId?: number;
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

/** A tokenizer without its chat template, special tokens and files. */
export type TextCoder = Omit<Tokenizer, 'chatTemplate' | 'eosTokenId' | 'padTokenId' | 'files'>;

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

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface ChatRenderOptions {
  /** Ends the text with the opening of the assistant's turn. */
  readonly addGenerationPrompt: boolean;
  /** Further variables for the template, e.g. `enable_thinking` or `tools`. */
  readonly variables?: { readonly [name: string]: Json };
}

/** A model's own chat template in Jinja, as on Hugging Face. */
export class ChatTemplate {
  readonly #template: Template;
  readonly #names: { readonly [name: string]: string | undefined };

  /** @param names contents of special tokens (`bos_token`, `eos_token`, …), which templates may print */
  constructor(source: string, names: { readonly [name: string]: string | undefined }) {
    this.#template = new Template(source);
    usePythonStrip(this.#template.parsed);
    this.#names = names;
  }

  /** @param messages also with further keys that the template reads, e.g. `tool_calls` */
  render(messages: readonly (ChatMessage | JsonObject)[], options: ChatRenderOptions): string {
    return this.#template.render({
      ...stripFunctions,
      ...this.#names,
      ...options.variables,
      messages,
      add_generation_prompt: options.addGenerationPrompt,
    });
  }
}

const METHODS = ['strip', 'lstrip', 'rstrip'] as const;
type Method = (typeof METHODS)[number];

/** Characters that Python's `str.strip()` removes; JavaScript's `trim` removes others. */
const WHITESPACE =
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';

/** Names of {@link stripFunctions} in a template. */
const nameOf = (method: Method) => `python ${method}`;

/** Variables that a template needs after {@link usePythonStrip}. */
const stripFunctions: Readonly<Record<string, (text: unknown, characters?: string | null) => string>> =
  Object.fromEntries(
    METHODS.map(method => [nameOf(method), (text, characters) => strip(method, text, characters)]),
  );

function strip(method: Method, text: unknown, characters?: string | null): string {
  if (typeof text !== 'string') throw new Error(`the chat template calls ${method} on what is not text`);
  const taken = new Set(characters ?? WHITESPACE);
  const points = [...text];
  let [start, end] = [0, points.length];
  while (method !== 'rstrip' && start < end && taken.has(points[start])) start++;
  while (method !== 'lstrip' && end > start && taken.has(points[end - 1])) end--;
  return points.slice(start, end).join('');
}

type Node = Record<string, unknown>;

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null;
}

/**
 * Replaces a template's calls of `strip`, `lstrip` and `rstrip` by {@link stripFunctions}: those of @huggingface/jinja
 * ignore their arguments.
 */
function usePythonStrip(node: unknown): void {
  if (!isNode(node)) return;
  for (const child of node instanceof Map ? [...node.keys(), ...node.values()] : Object.values(node))
    usePythonStrip(child);
  if (node.type !== 'CallExpression' || !isNode(node.callee) || node.callee.type !== 'MemberExpression')
    return;
  const { object, property, computed } = node.callee;
  const method = METHODS.find(name => !computed && isNode(property) && property.value === name);
  if (method === undefined) return;
  node.callee = { type: 'Identifier', value: nameOf(method) };
  node.args = [object, ...(node.args as unknown[])];
}
