import type { Json, JsonObject } from '../../../shared/json.ts';
import { badRequest } from './errors.ts';
import type { LanguageModel } from './language-model.ts';
import type { ChatRequest, RequestMessage } from './schemas.ts';
import { TextJobError, TextLimitError } from './text/text-process.ts';

type Conversation = Pick<
  ChatRequest,
  'messages' | 'tools' | 'add_generation_prompt' | 'continue_final_message' | 'chat_template_kwargs'
>;

/**
 * The text that a conversation is as a prompt, by the tokenizer's chat template.
 *
 * `continue_final_message` leaves the assistant's last message open: the prompt is that of the messages before it with the
 * opening of the assistant's turn, and then its unchanged text. This is how rollouts prime responses, so that the
 * tokens are those that a policy was trained on.
 * @param signal aborted when the client went away
 * @throws ApiError 400 for messages that the template cannot take, or takes too much time or memory for
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
      'add_generation_prompt and continue_final_message exclude each other: the open message is the response',
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

/** A message as templates take it: its content as one text, the arguments of calls as objects. */
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
