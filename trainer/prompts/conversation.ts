import type { ChatMessage, ChatTemplate, Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { PLACEHOLDER, textAfterResponse } from './chat.ts';

/** A message of a training example. */
export interface ExampleMessage extends ChatMessage {
  /** 0: an assistant's message that is not learned. */
  readonly weight?: number;
}

/** Learned tokens of a conversation: the assistants' messages, or the prompts as well. */
export type Learned = 'responses' | 'everything';

/** A conversation as tokens: the loss mask is 1 on learned tokens, including the end of a learned turn. */
export interface ConversationTokens {
  readonly tokenIds: Int32Array;
  readonly lossMask: Uint8Array;
}

/** Parts of a conversation besides the assistants' messages. */
interface Frame {
  /** Text before a response: everything since the last one. */
  before(user: string, first: boolean): string;
  /** Tokens after a response; the first `learned` of them are learned. */
  readonly after: readonly number[];
  readonly learned: number;
}

/**
 * Tokens of a conversation in the form of rollouts: through the tokenizer's chat template, or simply joined without
 * one. Every message is tokenized separately, so later messages change nothing.
 * @param prime text before a response that is not part of it, e.g. `<think>`, as in rollouts; '' for none
 * @param learned the assistants' messages, or the prompts as well; messages of weight 0 never are
 * @throws Error saying what is wrong with the messages, or which text the tokenizer cannot write
 */
export function tokenizeConversation(
  messages: readonly ExampleMessage[],
  tokenizer: Tokenizer,
  prime = '',
  learned: Learned = 'responses',
): ConversationTokens {
  const system = messages[0]?.role === 'system' ? messages[0].content : undefined;
  const turns = pairs(system === undefined ? messages : messages.slice(1));
  const frame = tokenizer.chatTemplate
    ? templateFrame(tokenizer.chatTemplate, tokenizer, system)
    : plainFrame(system ?? '');
  const tokenIds: number[] = [];
  const lossMask: number[] = [];
  const add = (ids: readonly number[], mask: number) => {
    for (const id of ids) {
      lossMask.push(tokenIds.length === 0 ? 0 : mask);
      tokenIds.push(id);
    }
  };
  const ofPrompts = learned === 'everything' ? 1 : 0;
  turns.forEach(({ user, assistant }, i) => {
    const primed = prime !== '' && assistant.content.startsWith(prime);
    const ofResponse = assistant.weight === 0 ? 0 : 1;
    add(encoded(frame.before(user, i === 0) + (primed ? prime : ''), tokenizer), ofPrompts);
    if (tokenIds.length === 0) throw new Error('an assistant speaks first: nothing predicts its first token');
    add(encoded(assistant.content.slice(primed ? prime.length : 0), tokenizer), ofResponse);
    add(frame.after.slice(0, frame.learned), ofResponse);
    add(frame.after.slice(frame.learned), ofPrompts);
  });
  return { tokenIds: Int32Array.from(tokenIds), lossMask: Uint8Array.from(lossMask) };
}

interface Pair {
  readonly user: string;
  readonly assistant: ExampleMessage;
}

function pairs(messages: readonly ExampleMessage[]): Pair[] {
  if (messages.length === 0 || messages.length % 2 === 1) {
    throw new Error(
      `a conversation is a user's message and an assistant's, once or more, after at most one system message; got ${messages.map(({ role }) => role).join(', ') || 'none'}`,
    );
  }
  return Array.from({ length: messages.length / 2 }, (_, i) => {
    const [user, assistant] = messages.slice(2 * i, 2 * i + 2);
    if (user.role !== 'user' || assistant.role !== 'assistant') {
      throw new Error(
        `after the system message user and assistant take turns; message ${2 * i} is by ${user.role}, the next by ${assistant.role}`,
      );
    }
    return { user: user.content, assistant };
  });
}

/** Joins messages as the `compact` prompt does. */
function plainFrame(system: string): Frame {
  return { before: (user, first) => (first ? system : '') + user, after: [], learned: 0 };
}

function templateFrame(template: ChatTemplate, tokenizer: Tokenizer, system: string | undefined): Frame {
  const opening: ChatMessage[] = system === undefined ? [] : [{ role: 'system', content: system }];
  const past: ChatMessage[] = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: PLACEHOLDER },
  ];
  const afterText = textAfterResponse(template);
  const ended = PLACEHOLDER + afterText;
  const before = (user: string, first: boolean): string => {
    const messages = [...opening, ...(first ? [] : past), { role: 'user', content: user } as const];
    const text = template.render(messages, { addGenerationPrompt: true });
    if (first) return text;
    const at = text.indexOf(ended);
    if (at < 0)
      throw new Error('this chat template changes earlier turns; a conversation cannot be appended to');
    return text.slice(at + ended.length);
  };
  return { before, after: tokenizer.encode(afterText), learned: 1 };
}

/** @throws Error when the ids decode to another text */
function encoded(text: string, tokenizer: Tokenizer): number[] {
  const ids = tokenizer.encode(text);
  const back = tokenizer.decode(ids);
  if (back === text) return ids;
  throw new Error(
    `the tokenizer cannot write ${JSON.stringify(text)}; it reads ${JSON.stringify(back)}: was the example made for another vocabulary?`,
  );
}
