import { setImmediate as othersFirst } from 'node:timers/promises';
import { chatPrompt } from './chat-prompt.ts';
import { ApiError, badRequest } from './errors.ts';
import type { LanguageModel } from './language-model.ts';
import type { ChatRequest, CompletionRequest } from './schemas.ts';
import { TextLimitError } from './text/text-process.ts';

/** Places that a chat takes: one for each choice. @throws ApiError 400 for more than there are */
export function chatPlaces({ n }: ChatRequest, mostChoices: number): number {
  if ((n ?? 1) <= mostChoices) return n ?? 1;
  throw badRequest(`n is more than the ${mostChoices} choices of this server`, 'n');
}

/** Places that a request takes: one for each choice of each prompt. @throws ApiError 400 for more than there are */
export function completionPlaces(request: CompletionRequest, mostChoices: number): number {
  const { length } = severalPrompts(request);
  const n = request.n ?? 1;
  if (length * n <= mostChoices) return length * n;
  throw badRequest(`${length} prompts times n = ${n} are more than ${mostChoices} choices`, 'prompt');
}

function severalPrompts({ prompt }: CompletionRequest): readonly (string | readonly number[])[] {
  const isList = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return (isList ? prompt : [prompt]) as readonly (string | readonly number[])[];
}

/**
 * The token ids of a conversation.
 * @param signal aborted when the client went away
 * @throws ApiError 400 for messages that the template cannot take, or that do not fit the context
 */
export async function conversationPrompt(
  request: ChatRequest,
  model: LanguageModel,
  signal: AbortSignal,
): Promise<readonly number[]> {
  const text = await chatPrompt(request, model, signal);
  return checkedPrompt(await encoded(text, model, 'messages', signal), model, 'messages');
}

/**
 * The token ids of each prompt of a completion request; others are answered between them.
 * @param signal aborted when the client went away
 * @throws ApiError 400 for a prompt that does not fit the context
 */
export async function completionPrompts(
  request: CompletionRequest,
  model: LanguageModel,
  signal: AbortSignal,
): Promise<(readonly number[])[]> {
  const prompts: (readonly number[])[] = [];
  for (const one of severalPrompts(request)) {
    if (prompts.length > 0) await othersFirst();
    const ids = typeof one === 'string' ? await encoded(one, model, 'prompt', signal) : one;
    prompts.push(checkedPrompt(ids, model));
  }
  return prompts;
}

/**
 * The token ids of a text. One that cannot fit the context is refused by its length, and otherwise by the tokens of its beginning.
 * @param signal aborted when the client went away
 * @throws ApiError 400
 */
export async function encoded(
  text: string,
  {
    tokenizer,
    encoder,
    maxSequenceLength,
  }: Pick<LanguageModel, 'tokenizer' | 'encoder' | 'maxSequenceLength'>,
  param: string,
  signal: AbortSignal,
): Promise<readonly number[]> {
  const tooLong = (what: string) =>
    new ApiError(400, `the text has ${what}`, { param, code: 'context_length_exceeded' });
  const most = maxSequenceLength * tokenizer.longestToken;
  if (text.length > most) {
    throw tooLong(
      `${text.length} characters; the model's context of ${maxSequenceLength} tokens holds ${most} at most`,
    );
  }
  const ids = await encoder.encode(text, maxSequenceLength, signal).catch(error => {
    if (!(error instanceof TextLimitError)) throw error;
    throw badRequest(`the model's tokenizer ${error.message} for this text`, param);
  });
  if (ids) return ids;
  throw tooLong(`more than ${2 * maxSequenceLength} tokens; the model's context holds ${maxSequenceLength}`);
}

/** @throws ApiError 400 for a prompt that is empty, too long or holds unknown ids */
export function checkedPrompt(
  ids: readonly number[],
  model: LanguageModel,
  param = 'prompt',
): readonly number[] {
  if (ids.length === 0) throw badRequest('the prompt is empty: it needs at least one token', param);
  if (ids.length >= model.maxSequenceLength) {
    throw new ApiError(
      400,
      `the prompt has ${ids.length} tokens; the model's context of ${model.maxSequenceLength} holds prompt and response together`,
      { param, code: 'context_length_exceeded' },
    );
  }
  const unknown = ids.find(id => id >= model.vocabularySize);
  if (unknown !== undefined) {
    throw badRequest(`token id ${unknown} is outside the vocabulary of ${model.vocabularySize}`, param);
  }
  return ids;
}
