import { randomUUID } from 'node:crypto';
import type { StreamedToken } from '../../generation/generation.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { Choice, ChoiceDelta } from './choice.ts';
import type { LanguageModel } from './language-model.ts';
import type { ChoiceOptions } from './requests.ts';

/** Replaces −∞, which JSON does not have, as in vLLM. */
const LEAST_LOG_PROB = -9999;

/** Fields of every object of one reply. @param kind `chatcmpl` or `cmpl` */
export function replyHead(kind: string, object: string, { name, fingerprint }: LanguageModel): object {
  return {
    id: `${kind}-${randomUUID().replaceAll('-', '')}`,
    object,
    created: Math.floor(Date.now() / 1000),
    model: name,
    system_fingerprint: fingerprint,
  };
}

/** Prompts count once, however many choices they have. */
export function usageOf(choices: readonly Choice[], n: number) {
  const prompt = choices.filter((_, i) => i % n === 0).reduce((sum, choice) => sum + choice.prompt.length, 0);
  const completion = choices.reduce((sum, choice) => sum + choice.count, 0);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/**
 * A choice of a chat completion: finished, or a piece of a streamed one.
 * @param sentCalls tool calls in earlier pieces; undefined for a finished choice
 */
export function chatChoice(
  { index, end }: Choice,
  { text, calls, tokens }: ChoiceDelta,
  model: LanguageModel,
  options: ChoiceOptions,
  sentCalls?: number,
): object {
  const called = <Call>(tool_calls: readonly Call[]) => (calls.length > 0 ? { tool_calls } : {});
  const content = text === '' && calls.length > 0 ? null : text;
  return {
    index,
    ...(sentCalls === undefined
      ? { message: { role: 'assistant', content, refusal: null, ...called(calls) } }
      : {
          delta: {
            ...(text === '' ? {} : { content: text }),
            ...called(calls.map((call, i) => ({ index: sentCalls + i, ...call }))),
          },
        }),
    logprobs: options.logProbs ? chatLogProbs(tokens, model.tokenizer) : null,
    finish_reason: end?.finishReason ?? null,
    ...(end === null ? {} : { stop_reason: end.stopReason }),
    ...(options.returnTokenIds ? { token_ids: idsOf(tokens) } : {}),
  };
}

/** The prompt to repeat before a completion, if requested. */
export interface Echo {
  readonly text: string;
  /** Log-probabilities of the prompt's tokens; absent if not requested. */
  readonly logProbs?: Float32Array;
}

/** A choice of a text completion, whole or a piece of it. */
export function completionChoice(
  choice: Choice,
  { text, tokens }: ChoiceDelta,
  model: LanguageModel,
  options: ChoiceOptions,
  {
    echo,
    offset = 0,
    first = true,
  }: { readonly echo?: Echo; readonly offset?: number; readonly first?: boolean },
): object {
  const { end, index, prompt } = choice;
  return {
    index,
    text: (echo?.text ?? '') + text,
    logprobs: options.logProbs ? textLogProbs(choice, tokens, model.tokenizer, echo, offset) : null,
    finish_reason: end?.finishReason ?? null,
    stop_reason: end?.stopReason ?? null,
    ...(options.returnTokenIds ? { token_ids: idsOf(tokens), prompt_token_ids: first ? prompt : null } : {}),
  };
}

function idsOf(tokens: readonly StreamedToken[]): number[] {
  return tokens.map(({ tokenId }) => tokenId);
}

function chatLogProbs(tokens: readonly StreamedToken[], tokenizer: Tokenizer): object {
  const entry = (id: number, logProb: number) => {
    const token = tokenizer.decode([id]);
    return { token, logprob: finite(logProb), bytes: [...Buffer.from(token)] };
  };
  return {
    content: tokens.map(token => ({
      ...entry(token.tokenId, logProbOf(token)),
      top_logprobs: Array.from(token.top?.tokenIds ?? [], (id, i) => entry(id, token.top!.logProbs[i])),
    })),
    refusal: null,
  };
}

function textLogProbs(
  { prompt }: Choice,
  tokens: readonly StreamedToken[],
  tokenizer: Tokenizer,
  echo: Echo | undefined,
  offset: number,
): object {
  const repeated = echo?.logProbs === undefined ? [] : prompt;
  const texts = [...repeated, ...idsOf(tokens)].map(id => tokenizer.decode([id]));
  let at = offset;
  return {
    tokens: texts,
    token_logprobs: [
      ...repeated.map((_, i) => (i === 0 ? null : finite(echo!.logProbs![i]))),
      ...tokens.map(token => finite(logProbOf(token))),
    ],
    top_logprobs: [
      ...repeated.map(() => null),
      ...tokens.map(({ top }) =>
        Object.fromEntries(
          Array.from(top?.tokenIds ?? [], (id, i) => [tokenizer.decode([id]), finite(top!.logProbs[i])]),
        ),
      ),
    ],
    text_offset: texts.map(text => {
      const begin = at;
      at += text.length;
      return begin;
    }),
  };
}

/** Under the distribution that was sampled from; at temperature 0 under that of temperature 1. */
function logProbOf({ logProb, top }: StreamedToken): number {
  return top === undefined ? logProb : Math.fround(top.logProb);
}

function finite(logProb: number): number {
  return Math.max(LEAST_LOG_PROB, logProb);
}
