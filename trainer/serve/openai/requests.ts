import { randomInt } from 'node:crypto';
import { setImmediate as othersFirst } from 'node:timers/promises';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { SamplingSettings } from '../../generation/generation.ts';
import type { TextGrammar } from '../../generation/grammar.ts';
import { sparseGrammar, type TokenGrammar } from '../../generation/grammar.ts';
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
  checkTokenIds(ids, model, param);
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

/** Most states and tokens of a request's grammar together. */
const LARGEST_GRAMMAR = 2 ** 18;
const GREATEST_RANDOM_SEED = 2 ** 31;
/** Default tokens of a text completion, as in OpenAI's API and vLLM. */
const COMPLETION_TOKENS = 16;
/** Most UTF-16 units of all bad words together: the workers tokenize them, and sample no token meanwhile. */
const LONGEST_BAD_WORDS = 4096;
const ANY_JSON: JsonObject = { type: 'object' };

/** Sampling of a request's choices, and the fields of each choice in the reply. */
export interface ChoiceOptions {
  readonly n: number;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** `maxNewTokens` is the requested number; the context may leave less. */
  readonly sampling: SamplingSettings;
  readonly seed: number;
  readonly grammar: TokenGrammar | TextGrammar | undefined;
  readonly logProbs: boolean;
  readonly topLogProbs: number;
  readonly returnTokenIds: boolean;
  readonly includeStop: boolean;
  readonly skipSpecial: boolean;
}

/**
 * @param json what {@link jsonGrammarOf} gives for the request
 * @throws ApiError 400 for what the model cannot do
 */
export function chatOptions(request: ChatRequest, model: LanguageModel, json?: TextGrammar): ChoiceOptions {
  const { logprobs, top_logprobs, max_tokens, max_completion_tokens, tool_choice, tools } = request;
  if (tool_choice && tool_choice !== 'auto' && tool_choice !== 'none') {
    throw badRequest('tool_choice must be "auto" or "none": calls cannot be forced', 'tool_choice');
  }
  if (tool_choice === 'auto' && !tools?.length) throw badRequest('tool_choice needs tools', 'tool_choice');
  if (top_logprobs && !logprobs) throw badRequest('top_logprobs needs logprobs: true', 'top_logprobs');
  return {
    ...commonOptions(request, model, max_completion_tokens ?? max_tokens ?? model.maxSequenceLength, json),
    logProbs: logprobs === true,
    topLogProbs: top_logprobs ?? 0,
  };
}

/**
 * @param json what {@link jsonGrammarOf} gives for the request
 * @throws ApiError 400 for what the model cannot do
 */
export function completionOptions(
  request: CompletionRequest,
  model: LanguageModel,
  json?: TextGrammar,
): ChoiceOptions {
  const { logprobs, max_tokens, echo } = request;
  if (max_tokens === 0 && !echo)
    throw badRequest('max_tokens must be at least 1, or 0 with echo', 'max_tokens');
  if (echo && request.stream) throw badRequest('echo cannot be used with stream', 'echo');
  return {
    ...commonOptions(request, model, max_tokens ?? COMPLETION_TOKENS, json),
    logProbs: typeof logprobs === 'number',
    topLogProbs: logprobs ?? 0,
  };
}

function commonOptions(
  request: ChatRequest | CompletionRequest,
  model: LanguageModel,
  maxNewTokens: number,
  json: TextGrammar | undefined,
): Omit<ChoiceOptions, 'logProbs' | 'topLogProbs'> {
  const { stop, stop_token_ids, ignore_eos, stream, stream_options, top_k } = request;
  if (stream_options && !stream) throw badRequest('stream_options needs stream: true', 'stream_options');
  const logitBias = request.logit_bias ?? {};
  checkTokenIds(Object.keys(logitBias).map(Number), model, 'logit_bias');
  return {
    n: request.n ?? 1,
    stream: stream === true,
    includeUsage: stream_options?.include_usage === true,
    sampling: {
      temperature: request.temperature ?? 1,
      topK: Math.max(0, top_k ?? 0),
      topP: request.top_p ?? 1,
      minP: request.min_p ?? 0,
      repetitionPenalty: request.repetition_penalty ?? 1,
      presencePenalty: request.presence_penalty ?? 0,
      frequencyPenalty: request.frequency_penalty ?? 0,
      logitBias,
      badWords: checkedBadWords(request.bad_words ?? []),
      maxNewTokens,
      stopTokenIds: [...(ignore_eos ? [] : model.stopTokenIds), ...(stop_token_ids ?? [])],
      ...(stop ? { stopStrings: typeof stop === 'string' ? [stop] : stop } : {}),
    },
    seed: request.seed == null ? randomInt(GREATEST_RANDOM_SEED) : seedPlus(request.seed, 0),
    grammar: request.token_grammar ? checkedGrammar(request.token_grammar, model) : json,
    returnTokenIds: request.return_token_ids === true,
    includeStop: request.include_stop_str_in_output === true,
    skipSpecial: request.skip_special_tokens ?? true,
  };
}

/**
 * Adds a number to a seed of OpenAI's API, which may be negative; the result wraps within 0 to the largest safe
 * integer.
 */
export function seedPlus(seed: number, number: number): number {
  const rest = Number.MAX_SAFE_INTEGER - number;
  if (seed > rest) return seed - rest - 1;
  return seed < -number ? seed + number + Number.MAX_SAFE_INTEGER + 1 : seed + number;
}

/** @throws ApiError 400 for more text than can be tokenized next to sampling */
function checkedBadWords(words: readonly string[]): readonly string[] {
  const length = words.reduce((sum, word) => sum + word.length, 0);
  if (length <= LONGEST_BAD_WORDS) return words;
  throw badRequest(
    `bad_words have ${length} characters together; the limit is ${LONGEST_BAD_WORDS}`,
    'bad_words',
  );
}

/** @throws ApiError 400 for a token that the model does not have */
export function checkTokenIds(
  ids: readonly number[],
  { vocabularySize }: Pick<LanguageModel, 'vocabularySize'>,
  param: string,
): void {
  const unknown = ids.find(id => id >= vocabularySize);
  if (unknown === undefined) return;
  throw badRequest(`token id ${unknown} is outside the vocabulary of ${vocabularySize}`, param);
}

/**
 * The automaton of the requested JSON; undefined if none is requested. Compiling it takes a while, so it comes before
 * the other checks of the request.
 * @throws ApiError 400 for a schema that is not supported
 */
export async function jsonGrammarOf(
  { response_format, token_grammar }: ChatRequest | CompletionRequest,
  model: LanguageModel,
): Promise<TextGrammar | undefined> {
  if (!response_format || response_format.type === 'text') return undefined;
  if (token_grammar) {
    throw badRequest('token_grammar and response_format cannot be used together', 'token_grammar');
  }
  if (model.jsonGrammar === undefined) {
    throw badRequest('responses of this model cannot be constrained', 'response_format');
  }
  if (response_format.type === 'json_object') return model.jsonGrammar(ANY_JSON);
  const schema = response_format.json_schema?.schema;
  if (typeof schema !== 'object' || schema === null) {
    throw badRequest('response_format: json_schema needs json_schema.schema', 'response_format');
  }
  return model.jsonGrammar(schema as JsonObject);
}

/** @throws ApiError 400 for a grammar that does not fit the vocabulary */
function checkedGrammar(grammar: TokenGrammar, { vocabularySize }: LanguageModel): TokenGrammar {
  const size = grammar.states.reduce((sum, { tokens }) => sum + 1 + tokens.length, 0);
  if (size > LARGEST_GRAMMAR) {
    throw badRequest(
      `token_grammar: ${size} states and tokens are more than ${LARGEST_GRAMMAR}`,
      'token_grammar',
    );
  }
  try {
    sparseGrammar('token_grammar', grammar, vocabularySize);
  } catch (error) {
    throw badRequest((error as Error).message, 'token_grammar');
  }
  return grammar;
}
