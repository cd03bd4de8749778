import { isObject, parseJson } from '../../../shared/json.ts';
import type { TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { clip, FormatError, type Row, textOf } from './format.ts';

/** A message of a conversation. */
export interface Message {
  readonly role: string;
  readonly text: string;
  /** Tool calls of an assistant, as `name(arguments)`. */
  readonly calls: readonly string[];
}

const START = '<|im_start|>';
const END = '<|im_end|>';
/** Action of a turn without a tool call. */
const ANSWER = 'Answer';

/**
 * Messages of a field: a list of OpenAI messages, or a text, which is split at ChatML's markers.
 * @param role role of a text without markers
 * @throws FormatError for anything else
 */
export function messagesIn(row: Row, name: string, role: string): Message[] {
  const value = row[name];
  if (typeof value === 'string') return chatMl(value, role);
  if (!Array.isArray(value))
    throw new FormatError(`\`${name}\` is a text or a list of messages, got ${clip(value)}`);
  return value.map((item, i) => messageOf(item, `${name}[${i}]`));
}

function messageOf(value: unknown, place: string): Message {
  if (!isObject(value) || typeof value.role !== 'string')
    throw new FormatError(`\`${place}\` is a message with \`role\` and \`content\`, got ${clip(value)}`);
  const thought = value.reasoning_content ?? value.reasoning;
  const texts = [typeof thought === 'string' ? thought : '', contentText(value.content)];
  const calls = Array.isArray(value.tool_calls) ? value.tool_calls.map(callOf) : [];
  return { role: value.role, text: texts.filter(text => text !== '').join('\n\n'), calls };
}

/** The text of a message: a text, or a list of parts; parts without text are shown by their type. */
export function contentText(content: unknown): string {
  if (content === undefined || content === null) return '';
  if (!Array.isArray(content)) return textOf(content);
  return content
    .map(part => {
      if (!isObject(part)) return textOf(part);
      return typeof part.text === 'string' ? part.text : `[${textOf(part.type)}]`;
    })
    .join('\n');
}

/** A tool call: OpenAI's, an ATIF file's, or one written as JSON within JSON. */
export function callOf(value: unknown): string {
  if (typeof value === 'string') {
    const parsed = parseJson(value);
    return isObject(parsed) ? callOf(parsed) : value;
  }
  if (!isObject(value)) return textOf(value);
  const call = isObject(value.function) ? value.function : value;
  return `${textOf(call.function_name ?? call.name ?? 'tool')}(${argumentsText(call.arguments ?? {})})`;
}

/** Longest list of arguments on one line. */
const MAX_LINE = 80;

/** Arguments of a call as JSON; long ones each on their line, with texts as they are. */
function argumentsText(given: unknown): string {
  const value = typeof given === 'string' ? parseJson(given) : given;
  const line = typeof given === 'string' ? given : JSON.stringify(given);
  if (!isObject(value) || (line.length <= MAX_LINE && !line.includes('\\n'))) return line;
  const lines = Object.entries(value).map(([name, part]) => `  ${name}: ${indented(part)}`);
  return `\n${lines.join('\n')}\n`;
}

function indented(value: unknown): string {
  const text = typeof value === 'string' ? value.trimEnd() : JSON.stringify(value);
  return text.includes('\n') ? `\n${text.replaceAll(/^/gm, '    ')}` : text;
}

/** Splits a text at ChatML's markers; one message where it has none. */
function chatMl(text: string, role: string): Message[] {
  const [first, ...others] = text.split(START);
  const parts = others.map(part => {
    const line = part.indexOf('\n');
    return line === -1 ? { role: part, text: '' } : { role: part.slice(0, line), text: part.slice(line + 1) };
  });
  return [{ role, text: first }, ...parts]
    .map(part => ({ ...part, text: withoutEnd(part.text), calls: [] }))
    .filter(({ text }) => text !== '');
}

function withoutEnd(text: string): string {
  const at = text.lastIndexOf(END);
  return at !== -1 && text.slice(at + END.length).trim() === '' ? text.slice(0, at) : text;
}

/** Messages as a prompt shows them, each under its role; a single message without its role. */
export function promptText(messages: readonly Message[]): string {
  const [only] = messages;
  if (messages.length === 1) return withCalls(only);
  return messages.map(message => `${message.role}\n${withCalls(message)}`).join('\n\n');
}

const withCalls = ({ text, calls }: Message): string =>
  [text, ...calls.map(call => `→ ${call}`)].filter(part => part !== '').join('\n');

/** The turns of a conversation: each assistant message responds to the messages before it. */
export function turnsOf(prompt: readonly Message[], completion: readonly Message[]): TurnRecord[] {
  const turns: TurnRecord[] = [];
  let before: Message[] = [...prompt];
  for (const message of completion) {
    if (message.role !== 'assistant') before.push(message);
    else {
      turns.push(turnOf(promptText(before), message));
      before = [];
    }
  }
  return turns;
}

/** A turn made of texts. */
export function turnOf(state: string, message: Message): TurnRecord {
  const response = withCalls(message);
  const names = message.calls.length === 0 ? [ANSWER] : message.calls;
  return {
    state,
    ...{ actions_left: 0, actions: names, reward: 0, penalty: 0, info: {} },
    ...{ llm_response: response, llm_raw_response: response, tokens: [0, 0], sample: -1 },
  };
}
