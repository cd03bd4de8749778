import { Template } from '@huggingface/jinja';

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface ChatRenderOptions {
  /** Ends the text with the opening of the assistant's turn. */
  readonly addGenerationPrompt: boolean;
  /** Further variables for the template, e.g. `enable_thinking`. */
  readonly variables?: { readonly [name: string]: string | number | boolean };
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
    this.#names = names;
  }

  render(messages: readonly ChatMessage[], options: ChatRenderOptions): string {
    return this.#template.render({
      ...this.#names,
      ...options.variables,
      messages,
      add_generation_prompt: options.addGenerationPrompt,
    });
  }
}
