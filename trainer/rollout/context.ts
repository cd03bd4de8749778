import type { PastTurn, Prompt, PromptTokens, TurnView } from '../prompts/prompt.ts';
import type { EpisodeSample } from './episode.ts';
import { type SampledTokens, TokenBuffer } from './token-buffer.ts';

export const CONTEXT_MODES = ['full', 'limited_multi_turn', 'single_turn'] as const;

/**
 * Part of an episode that a turn's prompt shows.
 * - `full`: all of it; one training sample an episode.
 * - `limited_multi_turn`: the last `window` turns; a sample a turn, which trains that turn.
 * - `single_turn`: the last `window` turns in one user message; a sample a turn.
 */
export type ContextMode = (typeof CONTEXT_MODES)[number];

export interface ContextSettings {
  readonly mode: ContextMode;
  /** Turns a prompt shows at most, the current one included; 0: no limit. */
  readonly window: number;
  /** Longest sequence the policy takes, prompt and response together, in tokens. */
  readonly maxSequenceLength: number;
  /** Full episodes stay one sequence: an episode that does not fit is too long. */
  readonly whole?: boolean;
}

/**
 * Characters of an observation for each token of the context: longer ones are cut before they are tokenized, which takes up to
 * 10 µs a character.
 */
const MAX_CHARACTERS_PER_TOKEN = 64;

export const FULL_CONTEXT: Pick<ContextSettings, 'mode' | 'window'> = { mode: 'full', window: 0 };

/** Tokens that the agent gets for a turn. */
export interface ContextStep {
  readonly sequenceId: number;
  readonly append: readonly number[];
  /** Most tokens of the response; less than requested where the context is nearly full. */
  readonly maxNewTokens: number;
  /** The prompt shows only part of the observation, because the context has no room for more. */
  readonly isCut: boolean;
}

/** An episode does not fit the policy's context: its group is lost. */
export class EpisodeTooLong extends Error {
  override name = 'EpisodeTooLong';
}

/** A turn with a prompt that alone exceeds the policy's context. */
export class PromptTooLong extends EpisodeTooLong {
  /** @param length with its unit */
  constructor(length: string, settings: ContextSettings, turn: number) {
    super(
      `the prompt of turn ${turn} has ${length}, the policy's context holds ${settings.maxSequenceLength}: ` +
        'raise policy.context (or rollout.max_model_len) or choose a shorter prompt',
    );
    this.name = 'PromptTooLong';
  }
}

interface TurnTokens {
  readonly past: PastTurn;
  readonly prompt: readonly number[];
  readonly response: ArrayLike<number>;
}

/**
 * The token sequences of one episode. Turns are appended and never tokenized again. Where the context would overflow,
 * or the mode says so, a new sequence begins: the opening, the turns that still fit, the new turn. Sampled tokens of
 * earlier sequences are context in it, so each token is trained once.
 */
export class EpisodeContext {
  readonly #prompt: Prompt;
  readonly #tokens: PromptTokens;
  readonly #settings: ContextSettings;
  readonly #newSequence: () => number;
  readonly #release: (sequenceId: number) => void;
  readonly #samples: EpisodeSample[] = [];
  readonly #turns: TurnTokens[] = [];
  #buffer: TokenBuffer | undefined;
  /** Tokens of the open sequence that show turns of earlier ones. */
  #repeated = 0;
  /** Below 0: no agent has the open sequence yet, so the next turn sends all of it. */
  #sequenceId = -1;
  /** First of the turns that the open sequence holds. */
  #first = 0;
  #current: { readonly view: TurnView; readonly prompt: readonly number[] } | undefined;

  /**
   * @param newSequence names a sequence that no episode has used
   * @param release called with each sequence that will not be continued
   */
  constructor(
    prompt: Prompt,
    tokens: PromptTokens,
    settings: ContextSettings,
    newSequence: () => number,
    release: (sequenceId: number) => void,
  ) {
    this.#prompt = prompt;
    this.#tokens = tokens;
    this.#settings = settings;
    this.#newSequence = newSequence;
    this.#release = release;
  }

  /** Begins a turn. @throws EpisodeTooLong */
  begin(view: TurnView): ContextStep {
    const { mode, maxSequenceLength } = this.#settings;
    const wanted = this.#prompt.task.responseLength;
    if (mode !== 'full') return this.#restart(view, this.#windowStart());
    const last = this.#turns.at(-1);
    if (this.#isOversized(view)) {
      if (this.#settings.whole && last) throw this.#tooManyCharacters(view);
      return this.#restart(view, this.#turns.length);
    }
    const prompt = this.#tokens.turn(view);
    if (!this.#buffer || !last || this.#windowStart() > this.#first)
      return this.#restart(view, this.#windowStart());
    const append = [...this.#tokens.close(last.response), ...prompt];
    if (this.#buffer.length + append.length + wanted > maxSequenceLength) {
      if (this.#settings.whole) {
        throw new EpisodeTooLong(
          `the episode has ${this.#buffer.length + append.length} tokens at turn ${view.turn} and up to ${wanted} to come, the ` +
            `policy's context holds ${maxSequenceLength}, and the advantage takes whole episodes: ` +
            'raise policy.context (or rollout.max_model_len), or allow fewer turns',
        );
      }
      return this.#restart(view, this.#first + 1);
    }
    this.#buffer.addContext(append);
    this.#current = { view, prompt };
    if (this.#sequenceId >= 0)
      return { sequenceId: this.#sequenceId, append, maxNewTokens: wanted, isCut: false };
    this.#sequenceId = this.#newSequence();
    return {
      sequenceId: this.#sequenceId,
      append: this.#buffer.tokenIds,
      maxNewTokens: wanted,
      isCut: false,
    };
  }

  /**
   * Ends the turn with the sampled tokens.
   * @param response the response for later prompts, the prime included
   * @returns position of the tokens, and which of the episode's samples holds them
   */
  accept(sampled: SampledTokens, response: string): { tokens: [start: number, end: number]; sample: number } {
    if (!this.#buffer || !this.#current) throw new Error('accept without a turn begun');
    const tokens = this.#buffer.addSampled(sampled);
    this.#turns.push({
      past: { view: this.#current.view, response },
      prompt: this.#current.prompt,
      response: sampled.tokenIds,
    });
    this.#current = undefined;
    return { tokens, sample: this.#samples.length };
  }

  /**
   * Tokens that would follow the last response if the episode had another turn; undefined where it is more than one
   * sequence, or where they and one more do not fit.
   */
  following(view: TurnView): Int32Array | undefined {
    const last = this.#turns.at(-1);
    const isWhole = this.#settings.mode === 'full' && this.#samples.length === 0 && !this.#isOversized(view);
    if (!isWhole || !this.#buffer || !last) return undefined;
    const ids = [...this.#tokens.close(last.response), ...this.#tokens.turn(view)];
    return this.#buffer.length + ids.length < this.#settings.maxSequenceLength
      ? Int32Array.from(ids)
      : undefined;
  }

  /** The context of another episode that has this one's turns; between turns. Tokens are copied, never tokenized again. */
  fork(): EpisodeContext {
    const fork = new EpisodeContext(
      this.#prompt,
      this.#tokens,
      this.#settings,
      this.#newSequence,
      this.#release,
    );
    fork.#samples.push(...this.#samples);
    fork.#turns.push(...this.#turns);
    fork.#buffer = this.#buffer?.copy();
    fork.#repeated = this.#repeated;
    fork.#first = this.#first;
    return fork;
  }

  /** Tokens of the open sequence that the next turn sends to an agent without any of them. */
  get unsentTokens(): number {
    return this.#sequenceId < 0 ? (this.#buffer?.length ?? 0) : 0;
  }

  /** Marks the open sequence as unsent: no agent sampled its turns. */
  unsend(): void {
    this.#sequenceId = -1;
  }

  /** Ends the episode: every sequence to train on, in order. */
  finish(): EpisodeSample[] {
    this.#closeSequence();
    return this.#samples;
  }

  #windowStart(): number {
    const { window } = this.#settings;
    return window === 0 ? 0 : Math.max(0, this.#turns.length + 1 - window);
  }

  /**
   * A new sequence with the turns from `first` on, fewer where they do not fit. An observation that alone leaves less than
   * half of the response is shortened.
   */
  #restart(full: TurnView, first: number): ContextStep {
    this.#closeSequence();
    const { maxSequenceLength } = this.#settings;
    const wanted = this.#prompt.task.responseLength;
    let view = full;
    if (this.#isOversized(full)) {
      view = this.#shortened(full, maxSequenceLength - wanted);
      if (view === full) throw this.#tooManyCharacters(full);
      first = this.#turns.length;
    }
    let ids = this.#sequence(view, first);
    while (ids.length + wanted > maxSequenceLength && first < this.#turns.length) {
      first++;
      ids = this.#sequence(view, first);
    }
    if (ids.length + wanted / 2 > maxSequenceLength) {
      view = this.#shortened(full, maxSequenceLength - wanted);
      ids = this.#sequence(view, first);
    }
    if (ids.length >= maxSequenceLength)
      throw new PromptTooLong(`${ids.length} tokens`, this.#settings, view.turn);
    this.#first = first;
    this.#sequenceId = this.#newSequence();
    this.#buffer = new TokenBuffer();
    this.#buffer.addContext(ids);
    const prompt = this.#tokens.turn(view);
    this.#current = { view, prompt };
    // Turns that share one message have no separate tokens.
    const own = this.#settings.mode === 'single_turn' ? 0 : prompt.length;
    this.#repeated = first < this.#turns.length ? ids.length - own : 0;
    return {
      sequenceId: this.#sequenceId,
      append: ids,
      maxNewTokens: Math.min(wanted, maxSequenceLength - ids.length),
      isCut: view !== full,
    };
  }

  /** True if the observation cannot fit by far. */
  #isOversized({ state }: TurnView): boolean {
    return state.length > MAX_CHARACTERS_PER_TOKEN * this.#settings.maxSequenceLength;
  }

  #tooManyCharacters({ state, turn }: TurnView): EpisodeTooLong {
    return new PromptTooLong(`an observation of ${state.length} characters`, this.#settings, turn);
  }

  /**
   * The view with as much of its observation as a prompt of `room` tokens holds: its beginning and its end. It stays as it is
   * where an environment lists its words, because the note on the cut is not one of them, and where cutting does not make it fit.
   */
  #shortened(view: TurnView, room: number): TurnView {
    if (this.#prompt.task.description.vocabulary) return view;
    const characters = Array.from(view.state);
    const keeping = (kept: number): TurnView => {
      const head = Math.ceil(kept / 2);
      const left = characters.length - kept;
      const end = characters.slice(head + left).join('');
      return { ...view, state: `${characters.slice(0, head).join('')} [${left} characters cut] ${end}` };
    };
    const fits = (kept: number) => this.#sequence(keeping(kept), this.#turns.length).length <= room;
    if (!fits(0)) return view;
    let least = 0;
    let step = 1;
    while (least + step < characters.length && fits(least + step)) {
      least += step;
      step *= 2;
    }
    for (; step >= 1; step /= 2) {
      if (least + step < characters.length && fits(least + step)) least += step;
    }
    return keeping(least);
  }

  #sequence(view: TurnView, first: number): number[] {
    const kept = this.#turns.slice(first);
    if (this.#settings.mode === 'single_turn') {
      return [
        ...this.#tokens.opening(),
        ...this.#tokens.folded(
          view,
          kept.map(turn => turn.past),
        ),
      ];
    }
    const ids = [...this.#tokens.opening()];
    for (const turn of kept) {
      append(ids, turn.prompt);
      append(ids, turn.response);
      append(ids, this.#tokens.close(turn.response));
    }
    append(ids, this.#tokens.turn(view));
    return ids;
  }

  #closeSequence(): void {
    if (!this.#buffer) return;
    const sample = this.#buffer.sample();
    this.#samples.push(this.#repeated > 0 ? { ...sample, repeated: this.#repeated } : sample);
    this.#buffer = undefined;
    if (this.#sequenceId >= 0) this.#release(this.#sequenceId);
  }
}

function append(ids: number[], more: ArrayLike<number>): void {
  for (let i = 0; i < more.length; i++) ids.push(more[i]);
}
