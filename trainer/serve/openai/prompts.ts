import { setImmediate as othersFirst } from 'node:timers/promises';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { ApiError, badRequest } from './errors.ts';
import type { LanguageModel } from './language-model.ts';
import { TextJobError, TextLimitError } from './prompt-encoder.ts';
import type { ChatRequest, CompletionRequest, RequestMessage } from './schemas.ts';

/**
 * Places of a chat: one for each choice.
 * @throws ApiError 400 for more than the limit
 */
export function chatPlaces({ n }: ChatRequest, mostChoices: number): number {
  if ((n ?? 1) <= mostChoices) return n ?? 1;
  throw badRequest(`n is more than the ${mostChoices} choices of this server`, 'n');
}

/**
 * Places of a request: one for each choice of each prompt.
 * @throws ApiError 400 for more than the limit
 */
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
 * The token ids of each prompt of a completion request; other requests are answered in between.
 * @param signal aborted when the client disconnects
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
 * The token ids of a text. A text that cannot fit the context is rejected by its length, or by the tokens of its
 * beginning.
 * @param signal aborted when the client disconnects
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

type Conversation = Pick<
  ChatRequest,
  'messages' | 'tools' | 'add_generation_prompt' | 'continue_final_message' | 'chat_template_kwargs'
>;

/**
 * The prompt text of a conversation, by the tokenizer's chat template. `continue_final_message` leaves the assistant's
 * last message open: the prompt is that of the messages before it with the opening of the assistant's turn, and then
 * its unchanged text. Rollouts prime responses in this way, so the tokens are those that a policy was trained on.
 * @param signal aborted when the client disconnects
 * @throws ApiError 400 for messages that the template rejects, or for which it needs too much time or memory
 */
export async function chatPrompt(
  request: Conversation,
  { tokenizer, encoder }: Pick<LanguageModel, 'tokenizer' | 'encoder'>,
  signal: AbortSignal,
): Promise<string> {
  if (tokenizer.chatTemplate === undefined) {
    throw badRequest(
      'the model has no chat template: use /v1/completions, or put a chat_template.jinja into its folder',
      'messages',
    );
  }
  const messages = request.messages.map(templateMessage);
  const open = request.continue_final_message === true;
  const last = messages.at(-1)!;
  if (open && last.role !== 'assistant') {
    throw badRequest(
      'continue_final_message: the last message must be of the assistant',
      'continue_final_message',
    );
  }
  if (open && request.add_generation_prompt === true) {
    throw badRequest(
      'add_generation_prompt and continue_final_message cannot be used together: the open message is the response',
      'add_generation_prompt',
    );
  }
  const variables = {
    ...(request.chat_template_kwargs as JsonObject | null | undefined),
    ...(request.tools && request.tools.length > 0 ? { tools: request.tools as Json } : {}),
  };
  try {
    const addGenerationPrompt = open || (request.add_generation_prompt ?? true);
    const text = await encoder.render(
      open ? messages.slice(0, -1) : messages,
      { addGenerationPrompt, variables },
      signal,
    );
    return open ? text + String(last.content) : text;
  } catch (error) {
    if (error instanceof TextJobError) {
      throw badRequest(`the chat template refuses these messages: ${error.message}`, 'messages');
    }
    if (error instanceof TextLimitError) {
      throw badRequest(`the model's chat template ${error.message} for these messages`, 'messages');
    }
    throw error;
  }
}

/** A message in the form of templates: its content as one text, the arguments of calls as objects. */
function templateMessage(message: RequestMessage, index: number): JsonObject {
  const { role, content, tool_calls, name, tool_call_id, reasoning_content } = message;
  const text = Array.isArray(content) ? content.map(part => part.text).join('') : (content ?? '');
  return {
    role: role === 'developer' ? 'system' : role,
    content: text,
    ...(name ? { name } : {}),
    ...(tool_call_id ? { tool_call_id } : {}),
    ...(reasoning_content ? { reasoning_content } : {}),
    ...(tool_calls && tool_calls.length > 0
      ? {
          tool_calls: tool_calls.map(({ id, function: call }) => ({
            id,
            type: 'function',
            function: called(call, index),
          })),
        }
      : {}),
  } as JsonObject;
}

function called(call: { readonly name: string; readonly arguments: string }, index: number): JsonObject {
  try {
    return { name: call.name, arguments: JSON.parse(call.arguments || '{}') as Json };
  } catch {
    throw badRequest(`messages/${index}/tool_calls: the arguments of ${call.name} are not JSON`, 'messages');
  }
}
