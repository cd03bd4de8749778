import { Template } from '@huggingface/jinja';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { stripFunctions, usePythonStrip } from './python-strip.ts';

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

/** A model's own chat template: Jinja, as Hugging Face writes it. */
export class ChatTemplate {
  readonly source: string;
  readonly #template: Template;
  readonly #names: { readonly [name: string]: string | undefined };

  /** @param names contents of special tokens (`bos_token`, `eos_token`, …), which templates may print */
  constructor(source: string, names: { readonly [name: string]: string | undefined }) {
    this.source = source;
    this.#template = new Template(source);
    usePythonStrip(this.#template);
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
