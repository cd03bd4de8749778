import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as othersFirst } from 'node:timers/promises';
import { inSlices, type Sliced } from '../../../shared/slices.ts';
import type { TextGrammar } from '../../generation/grammar.ts';
import { Choice } from './choice.ts';
import { badRequest } from './errors.ts';
import type { LanguageModel } from './language-model.ts';
import { type ChoiceOptions, chatOptions, completionOptions } from './requests.ts';
import { chatChoice, completionChoice, type Echo, replyHead, usageOf } from './responses.ts';
import type { ChatRequest, CompletionRequest } from './schemas.ts';

/** A checked request, ready for sampling. */
export interface CompletionTask {
  readonly kind: 'chat' | 'completion';
  readonly model: LanguageModel;
  readonly options: ChoiceOptions;
  readonly choices: readonly Choice[];
  /** Repeats prompts in front of completions. */
  readonly echo: boolean;
  /** Nothing is sampled: the reply holds only the prompt, with its log-probabilities. */
  readonly promptOnly: boolean;
}

/**
 * @param prompt what `conversationPrompt` gives for the request
 * @param json the automaton of the JSON that is wanted, if any
 * @throws ApiError 400
 */
export function chatTask(
  request: ChatRequest,
  model: LanguageModel,
  prompt: readonly number[],
  json?: TextGrammar,
): CompletionTask {
  const options = chatOptions(request, model, json);
  const tools = (request.tools?.length ?? 0) > 0 && request.tool_choice !== 'none';
  const choices = choicesOf([prompt], model, options, tools);
  return { kind: 'chat', model, options, choices, echo: false, promptOnly: false };
}

/**
 * @param prompts what `completionPrompts` gives for the request
 * @param json the automaton of the JSON that is wanted, if any
 * @throws ApiError 400
 */
export function completionTask(
  request: CompletionRequest,
  model: LanguageModel,
  prompts: readonly (readonly number[])[],
  json?: TextGrammar,
): CompletionTask {
  const options = completionOptions(request, model, json);
  if (request.echo && options.logProbs && model.score === undefined) {
    throw badRequest('this model gives no log-probabilities of prompts: leave out echo or logprobs', 'echo');
  }
  const choices = choicesOf(prompts, model, options, false);
  const echo = request.echo === true;
  return { kind: 'completion', model, options, choices, echo, promptOnly: request.max_tokens === 0 };
}

const choicesOf = (
  prompts: readonly (readonly number[])[],
  model: LanguageModel,
  options: ChoiceOptions,
  tools: boolean,
): Choice[] =>
  prompts
    .flatMap(prompt => Array.from({ length: options.n }, () => prompt))
    .map((prompt, i) => new Choice(i, prompt, model, options, tools));

/** Longest delay of other requests by the events of one reply. */
const SLICE_MS = 4;

const OBJECTS = {
  chat: { prefix: 'chatcmpl', whole: 'chat.completion', piece: 'chat.completion.chunk' },
  completion: { prefix: 'cmpl', whole: 'text_completion', piece: 'text_completion' },
} as const;

/**
 * Samples all choices and returns the reply as JSON. It is built choice by choice, so other requests continue
 * meanwhile.
 */
export async function complete(task: CompletionTask, signal: AbortSignal): Promise<string> {
  const { kind, model, options, choices } = task;
  const { prefix, whole } = OBJECTS[kind];
  const head = replyHead(prefix, whole, model);
  if (!task.promptOnly) await Promise.all(choices.map(choice => choice.run(signal)));
  const echoes = await echoesOf(task, signal);
  const written = await inSlices(choicesAsJson(task, echoes));
  const rest = {
    usage: usageOf(choices, options.n),
    ...(kind === 'chat' && options.returnTokenIds ? { prompt_token_ids: choices[0].prompt } : {}),
  };
  const [first, last] = [JSON.stringify(head).slice(0, -1), JSON.stringify(rest).slice(1)];
  return `${first},"choices":[${written.join()}],${last}`;
}

function* choicesAsJson(
  { kind, model, options, choices, promptOnly }: CompletionTask,
  echoes: readonly Echo[],
): Sliced<string[]> {
  const written: string[] = [];
  for (const [i, choice] of choices.entries()) {
    const delta = choice.take();
    const shown =
      kind === 'chat'
        ? chatChoice(choice, delta, model, options)
        : completionChoice(choice, delta, model, options, { echo: echoes[i] });
    written.push(JSON.stringify(promptOnly ? { ...shown, finish_reason: 'length' } : shown));
    yield;
  }
  return written;
}

/** Prompts to repeat in front of each choice. They are scored one after the other, each once for all its choices. */
async function echoesOf(
  { model, options, echo, choices }: CompletionTask,
  signal: AbortSignal,
): Promise<readonly Echo[]> {
  const echoes: Echo[] = [];
  for (const [i, { prompt }] of echo ? choices.entries() : []) {
    if (i % options.n > 0) {
      echoes.push(echoes[i - 1]);
      continue;
    }
    await othersFirst();
    signal.throwIfAborted();
    const text = model.tokenizer.decode(prompt, { skipSpecial: options.skipSpecial });
    echoes.push(options.logProbs ? { text, logProbs: await model.score!(prompt) } : { text });
  }
  return echoes;
}

/**
 * Samples all choices and writes them as events while they grow. A slow client gets larger pieces; nothing accumulates
 * except the response itself. Errors before the first token are thrown before anything is written.
 * @param open starts the reply
 * @param onFirst called when the first token is written
 */
export async function stream(
  task: CompletionTask,
  open: () => EventStream,
  signal: AbortSignal,
  onFirst: () => void,
): Promise<void> {
  const { kind, model, options, choices } = task;
  const { prefix, piece } = OBJECTS[kind];
  const writer = new ChoiceWriter(task, replyHead(prefix, piece, model));
  let news = Promise.withResolvers<void>();
  let failure: unknown;
  let first = true;
  const done = Promise.all(choices.map(choice => choice.run(signal, () => news.resolve()))).catch(error => {
    failure = error;
    news.resolve();
  });
  // Until the first token, an error is still a separate reply.
  await Promise.race([news.promise, done]);
  if (failure !== undefined) throw failure;
  const events = open();
  if (kind === 'chat') writer.open(events);
  let until = performance.now() + SLICE_MS;
  while (choices.some(({ end }) => end === null)) {
    news = Promise.withResolvers();
    for (const choice of choices) {
      if (!choice.ready) continue;
      if (first) onFirst();
      first = false;
      writer.write(choice, events);
      await events.drained(signal);
      if (performance.now() < until) continue;
      await othersFirst();
      until = performance.now() + SLICE_MS;
    }
    if (failure !== undefined) throw failure;
    if (choices.some(({ ready }) => ready)) continue;
    if (choices.some(({ end }) => end === null)) await news.promise;
  }
  await done;
  if (options.includeUsage) writer.finish(events);
  events.end();
}

/** Writes pieces of choices. */
class ChoiceWriter {
  /** The fields that every event begins with, as JSON without its closing brace. */
  readonly #head: string;
  readonly #task: CompletionTask;
  readonly #written: { text: number; calls: number; begun: boolean }[];

  constructor(task: CompletionTask, head: object) {
    this.#task = task;
    this.#head = JSON.stringify(head).slice(0, -1);
    this.#written = task.choices.map(() => ({ text: 0, calls: 0, begun: false }));
  }

  /** The events that open the assistant's messages. */
  open(events: EventStream): void {
    const { choices, options } = this.#task;
    for (const { index, prompt } of choices) {
      const delta = { role: 'assistant', content: '' };
      const more = options.returnTokenIds && index === 0 ? { prompt_token_ids: prompt } : {};
      this.#send(events, [{ index, delta, logprobs: null, finish_reason: null }], null, more);
    }
  }

  /** Writes a choice's new text, if there is any. */
  write(choice: Choice, events: EventStream): void {
    const { kind, model, options } = this.#task;
    const written = this.#written[choice.index];
    const delta = choice.take();
    const { text, calls, tokens } = delta;
    const silent = text === '' && calls.length === 0 && choice.end === null;
    const visible = tokens.length > 0 && (options.logProbs || options.returnTokenIds);
    if (silent && !visible) return;
    const piece =
      kind === 'chat'
        ? chatChoice(choice, delta, model, options, written.calls)
        : completionChoice(choice, delta, model, options, { offset: written.text, first: !written.begun });
    written.text += text.length;
    written.calls += calls.length;
    written.begun = true;
    this.#send(events, [piece], null);
  }

  /** The event after the last piece, for requests that ask for the usage. */
  finish(events: EventStream): void {
    const { choices, options } = this.#task;
    this.#send(events, [], usageOf(choices, options.n));
  }

  #send(events: EventStream, choices: readonly object[], usage: object | null, more: object = {}): void {
    const { includeUsage } = this.#task.options;
    const rest = JSON.stringify({ choices, ...(includeUsage ? { usage } : {}), ...more });
    events.event(`${this.#head},${rest.slice(1)}`);
  }
}

/** Milliseconds without reading after which a client counts as disconnected. */
const STALL_MS = 60_000;
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

/**
 * Writes server-sent events. It waits for a slow client ({@link drained}), so no more than the connection's own buffer
 * is pending; the writer joins text that arrives in the meantime.
 */
export class EventStream {
  readonly #response: ServerResponse;

  /** @param headers of the reply besides those of an event stream */
  constructor(response: ServerResponse, headers: Readonly<Record<string, string>>) {
    this.#response = response;
    response.writeHead(200, { ...headers, ...HEADERS });
    response.flushHeaders();
  }

  /**
   * Resolves when the client has read on.
   * @throws when the signal is aborted, or the client has read nothing for a minute; its connection is then closed
   */
  async drained(signal: AbortSignal): Promise<void> {
    if (!this.#response.writableNeedDrain) return;
    try {
      await once(this.#response, 'drain', {
        signal: AbortSignal.any([signal, AbortSignal.timeout(STALL_MS)]),
      });
    } catch (error) {
      this.#response.destroy();
      throw error;
    }
  }

  /** @param json without line breaks */
  event(json: string): void {
    this.#response.write(`data: ${json}\n\n`);
  }

  end(): void {
    this.#response.end('data: [DONE]\n\n');
  }
}
