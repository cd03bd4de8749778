import type { Generation, StreamedToken, TopLogProbs } from '../../generation/generation.ts';
import type { LanguageModel } from './language-model.ts';
import { type ChoiceOptions, seedPlus } from './options.ts';
import { ResponseText } from './response-text.ts';
import { type ToolCall, ToolCallReader } from './tools.ts';

export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Why a choice ended. */
export interface ChoiceEnd {
  readonly finishReason: FinishReason;
  /** The stop string or token of the request that ended it; null for the model's own end, as vLLM says it. */
  readonly stopReason: string | number | null;
}

/** The part of a choice since its last {@link Choice.take}. */
export interface ChoiceDelta {
  readonly text: string;
  readonly calls: readonly ToolCall[];
  readonly tokens: readonly StreamedToken[];
}

/** One response to a prompt, while its tokens come and afterwards. */
export class Choice {
  readonly index: number;
  readonly prompt: readonly number[];
  readonly #model: LanguageModel;
  readonly #options: ChoiceOptions;
  readonly #text: ResponseText;
  readonly #reader: ToolCallReader | null;
  #pending: StreamedToken[] = [];
  #count = 0;
  #called = false;
  #generation: Generation | null = null;
  #end: ChoiceEnd | null = null;

  /** @param tools the response may call tools */
  constructor(
    index: number,
    prompt: readonly number[],
    model: LanguageModel,
    options: ChoiceOptions,
    tools: boolean,
  ) {
    this.index = index;
    this.prompt = prompt;
    this.#model = model;
    this.#options = options;
    const { sampling, includeStop, skipSpecial } = options;
    this.#text = new ResponseText(model.tokenizer, {
      stopStrings: sampling.stopStrings ?? [],
      includeStop,
      skipSpecial,
    });
    this.#reader = tools ? new ToolCallReader() : null;
  }

  /** Tokens so far. */
  get count(): number {
    return this.#count;
  }

  /** Null while it is sampled, and until its last delta was taken. */
  get end(): ChoiceEnd | null {
    return this.#end;
  }

  /**
   * Samples the response.
   * @param wake called when {@link take} has something to return; without it everything comes at the end
   */
  async run(signal: AbortSignal, wake?: () => void): Promise<void> {
    const { sampling, seed, n, grammar, logProbs, topLogProbs } = this.#options;
    const room = this.#model.maxSequenceLength - this.prompt.length;
    const generation = await this.#model.generate(
      {
        promptIds: this.prompt,
        sampling: { ...sampling, maxNewTokens: Math.min(sampling.maxNewTokens, room) },
        // The first choice has the seed of the request, so that it is what a request for one gives.
        seed: seedPlus(seed, this.index % n),
        ...(grammar === undefined ? {} : { grammar }),
        ...(logProbs ? { topLogProbs } : {}),
      },
      signal,
      wake && (token => this.#add(token, wake)),
    );
    if (wake === undefined) this.#pending = tokensOf(generation);
    this.#count = generation.tokenIds.length;
    this.#generation = generation;
    wake?.();
  }

  /** True if {@link take} has something to return. */
  get ready(): boolean {
    return this.#pending.length > 0 || (this.#generation !== null && this.#end === null);
  }

  /** The part since the last call. After the last token this sets {@link end}. */
  take(): ChoiceDelta {
    const tokens = this.#pending;
    this.#pending = [];
    let text = this.#text.push(tokens.map(({ tokenId }) => tokenId));
    const ended = this.#generation;
    if (ended !== null) text += this.#text.finish();
    const delta = this.#reader?.push(text) ?? { content: text, calls: [] };
    const rest = ended === null ? undefined : this.#reader?.finish();
    const calls = [...delta.calls, ...(rest?.calls ?? [])];
    this.#called ||= calls.length > 0;
    if (ended !== null) this.#end = this.#endOf(ended);
    return { text: delta.content + (rest?.content ?? ''), calls, tokens };
  }

  #add(token: StreamedToken, wake: () => void): void {
    this.#pending.push(token);
    this.#count++;
    wake();
  }

  #endOf({ finishReason, tokenIds }: Generation): ChoiceEnd {
    const { stop } = this.#text;
    if (finishReason !== 'stop' && stop === null) return { finishReason: 'length', stopReason: null };
    const last = tokenIds.at(-1);
    const own = last === undefined || this.#model.stopTokenIds.includes(last);
    const byToken = !own && this.#options.sampling.stopTokenIds.includes(last);
    return {
      finishReason: this.#called ? 'tool_calls' : 'stop',
      stopReason: stop ?? (byToken ? last : null),
    };
  }
}

function tokensOf({ tokenIds, logProbs, versions, top }: Generation): StreamedToken[] {
  return Array.from(tokenIds, (tokenId, i) => ({
    tokenId,
    logProb: logProbs[i],
    version: versions[i],
    ...(top === undefined ? {} : { top: top[i] as TopLogProbs }),
  }));
}
