import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { chatPrompt } from './chat.ts';
import { compactPrompt } from './compact.ts';
import type { Prompt, PromptTask } from './prompt.ts';

const TEMPLATES = { chat: chatPrompt, compact: compactPrompt };

/** `chat` speaks through the model's own chat template, `compact` takes a few tokens a turn. */
export type PromptName = keyof typeof TEMPLATES;
export const PROMPT_NAMES = Object.keys(TEMPLATES) as readonly PromptName[];

/**
 * @param tokenizer absent for agents that read text
 * @throws Error when the tokenizer cannot write the prompt: no chat template, a word missing
 */
export function createPrompt(name: PromptName, task: PromptTask, tokenizer?: Tokenizer): Prompt {
  return TEMPLATES[name](task, tokenizer);
}
