import type { Json } from '../../../shared/json.ts';
import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { fill, h, newId } from '../../components/element.ts';
import type { PlayAddress } from '../address.ts';
import { namedAction } from '../client/action-names.ts';
import { type Client, environmentPath, RequestFailed } from '../client/client.ts';
import type { Environment } from '../client/wire.ts';
import { BoardView } from '../components/board.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { stepReport } from '../components/step-report.ts';
import { ActionPad } from './action-pad.ts';
import { EndBanner } from './end-banner.ts';
import { EnvironmentIntro, type PlayRequest } from './environment-intro.ts';
import type { Episode, PlayedStep } from './episode.ts';
import { keyOf } from './keys.ts';
import { PolicyControls } from './policy-controls.ts';

/** Actions that wait for the one in progress, and how many of them the page names. */
const MAX_WAITING = 32;
const MAX_NAMED = 8;
const UNDO_KEY = 'Backspace';
const POLICY_KEY = '.';
/** Characters of actions that the address holds, so that reloading the page plays them again; longer episodes begin again. */
const MAX_ADDRESS_LENGTH = 4000;

/** Problems of a session that is there no more. */
const GONE: ReadonlySet<string | undefined> = new Set([
  'unknown_session',
  'session_expired',
  'session_closed',
]);

export interface EpisodeViewOptions {
  /** Reads out to those who do not see the page. */
  readonly announce: (text: string) => void;
  /** Called with the address of the episode: its start and the actions taken since. */
  readonly onaddress: (address: PlayAddress) => void;
  /** Called after every change of the episode. */
  readonly onchange: (moves: readonly PlayedStep[]) => void;
}

/** After so long without a reply the page says that it waits, in milliseconds. */
const PENDING_AFTER_MS = 250;
/** Selector of elements that handle keys themselves. */
const OWN_KEYS = 'input, textarea, select, summary, [role="grid"], [contenteditable]';
/** Boards that are as wide as there is room, with the controls below. */
const WIDE_BOARDS: ReadonlySet<string> = new Set([
  'shop-page',
  'household',
  'sudoku',
  'spatial-room',
  'choice-question',
  'tried-question',
  'searched-question',
  'countdown',
  'proof',
  'program',
  'bandit',
  'plain-text',
]);
/** Boards that hold a task, which is answered in the field below. */
const TASKS: ReadonlySet<string> = new Set([
  'choice-question',
  'tried-question',
  'searched-question',
  'countdown',
  'plain-text',
]);

/** View in which an environment is played. Owns the present episode. */
export class EpisodeView {
  readonly #client: Client;
  readonly #options: EpisodeViewOptions;
  readonly #title = h('h1', { tabindex: -1 });
  readonly #note = new ProblemNote();
  readonly #board = new BoardView();
  readonly #undo = h(
    'button',
    { type: 'button', 'aria-keyshortcuts': UNDO_KEY, onclick: () => this.#goBack() },
    'Undo',
    h('kbd', { 'aria-hidden': 'true' }, '⌫'),
  );
  readonly #undoProblem = h('p', { class: 'hint', id: newId() });
  readonly #actions = h('div', { class: 'pad-place' });
  readonly #end = h('div', { class: 'end-place' });
  readonly #anything = h('div', {});
  readonly #policyPlace = h('div', {});
  readonly #pending = h('p', { class: 'chip warn pending', role: 'status' });
  readonly #loading = h(
    'div',
    { class: 'panel play loading', hidden: true },
    h('p', {}, 'Opening a session …'),
  );
  readonly #play = h(
    'div',
    { class: 'panel play', hidden: true },
    this.#board.figures,
    h(
      'div',
      { class: 'play-body' },
      this.#board.focusTarget,
      h('div', { class: 'controls' }, this.#actions, this.#end),
    ),
    h('div', { class: 'row turns' }, this.#undo, this.#policyPlace, this.#pending),
    this.#note.element,
    this.#undoProblem,
  );
  readonly #before = h('div', { class: 'intro-row' });
  readonly #start = h('div', { class: 'start-row' });
  readonly #after = h('div', { class: 'stack' });
  readonly #loadNote = new ProblemNote();
  readonly element = h(
    'section',
    { class: 'stack episode', 'aria-label': 'Play', tabindex: -1 },
    this.#before,
    this.#loadNote.element,
    this.#loading,
    this.#play,
    this.#start,
    this.#after,
  );
  #intro: EnvironmentIntro | undefined;
  #pad: ActionPad | undefined;
  #policy: PolicyControls | undefined;
  #banner: EndBanner | undefined;
  #episode: Episode | undefined;
  /** The session ended on the server; the next start opens another one. */
  #gone = false;
  /** Episodes that the server was asked for; the last one counts. */
  #beginning = 0;
  /** Actions that were asked for and not yet sent, in their order. */
  #waiting: Json[] = [];
  #isSlow = false;
  /** Things in progress that the visitor waits for. */
  #underWay = 0;
  readonly #queue = new SerialQueue();
  #turn = 0;

  constructor(client: Client, options: EpisodeViewOptions) {
    this.#client = client;
    this.#options = options;
  }

  get episode(): Episode | undefined {
    return this.#episode;
  }

  /** @param focus whether the visitor asked for it, so that the focus goes to where it is played */
  async open(request: PlayRequest, focus: boolean): Promise<void> {
    this.close();
    const turn = this.#turn;
    this.#title.textContent = request.envId;
    fill(this.#before, this.#title);
    fill(this.#start);
    fill(this.#after);
    this.#loadNote.clear();
    this.#loading.hidden = false;
    try {
      const path = environmentPath(request.envId);
      const environment = await this.#client.json<Environment>('GET', path, { quiet: true });
      if (turn !== this.#turn) return;
      this.#intro = new EnvironmentIntro(this.#client, environment, request, {
        title: this.#title,
        startOver: seed => this.#startOver(seed),
        reset: seed => this.#reset(seed),
      });
      fill(this.#before, this.#intro.element);
      fill(this.#start, this.#intro.start);
      fill(this.#after, this.#board.textElement, this.#board.infoElement, this.#anything, this.#intro.more);
      await this.#begin(this.#intro, request.seed, request.actions);
    } catch (error) {
      if (turn === this.#turn) this.#loadNote.show(error);
    }
    if (turn === this.#turn) this.#loading.hidden = true;
    if (focus && turn === this.#turn && !isTyping()) this.focus();
  }

  /** Ends the episode and its session. */
  close(): void {
    this.#turn++;
    this.#dropWaiting();
    this.#policy?.stop();
    const episode = this.#episode;
    this.#episode = undefined;
    this.#intro = undefined;
    this.#pad = undefined;
    this.#play.hidden = true;
    this.#loading.hidden = true;
    fill(this.#actions);
    fill(this.#end);
    if (episode && !this.#gone) {
      // The session would expire anyway, and the visitor has left it.
      episode.close().catch(() => {});
    }
  }

  /** To where it is played, or to the title of what cannot be. */
  focus(): void {
    const onBoard = this.#board.focusTarget.querySelector<HTMLElement>('[data-board-focus]:not(:disabled)');
    const target = this.#episode ? (onBoard ?? this.#pad?.field ?? this.#board.focusTarget) : this.#title;
    target.focus({ preventScroll: true });
  }

  /** A new session with what is set, in the place of the one that there is. */
  async #startOver(seed: number | undefined): Promise<void> {
    const intro = this.#intro;
    if (!intro) return;
    const turn = ++this.#turn;
    this.#dropWaiting();
    this.#policy?.stop();
    const old = this.#gone ? undefined : this.#episode;
    this.#loadNote.clear();
    try {
      const begun = this.#begin(intro, seed);
      // What is done next is done in the new episode.
      this.#queue.run(() => Promise.allSettled([begun]));
      await begun;
      if (turn === this.#turn && old !== this.#episode) await old?.close();
    } catch (error) {
      if (turn === this.#turn) this.#loadNote.show(error);
    }
  }

  async #begin(intro: EnvironmentIntro, seed: number | undefined, actions?: readonly Json[]): Promise<void> {
    const turn = this.#turn;
    this.#beginning++;
    try {
      const episode = await intro.open(seed, actions);
      if (turn === this.#turn && episode) this.#take(episode);
      else await episode?.close();
    } finally {
      this.#beginning--;
    }
  }

  #take(episode: Episode): void {
    const { environment } = episode;
    this.#episode = episode;
    this.#gone = false;
    this.#note.clear();
    this.#pad = new ActionPad(environment, action => this.#act(action));
    this.#policy = new PolicyControls(environment, {
      plan: policy => episode.plan(policy),
      act: action => this.#act(action),
      say: this.#options.announce,
      fail: error => this.#fail(error),
    });
    this.#banner = new EndBanner(environment, {
      again: () => this.#startAgain(undefined),
      sameLevel: () => this.#startAgain(this.#episode?.session.seed ?? undefined),
      nextSeed: () => this.#startAgain((this.#episode?.session.seed ?? -1) + 1),
    });
    this.#intro!.describe(environment);
    fill(this.#actions, this.#pad.element);
    fill(this.#anything, this.#pad.anything);
    fill(this.#end, this.#banner.element);
    fill(this.#policyPlace, this.#policy.element);
    this.#play.hidden = false;
    this.#refresh();
  }

  /** From the end of an episode to the next one, with the focus where it is played. */
  async #startAgain(seed: number | undefined): Promise<void> {
    await this.#reset(seed);
    this.focus();
  }

  async #reset(seed: number | undefined): Promise<void> {
    if (this.#gone || !this.#episode || this.#beginning > 0) {
      await this.#startOver(seed);
      return;
    }
    this.#policy?.stop();
    const done = await this.#queue.run(() => this.#attempt(episode => episode.reset(seed)));
    if (done) this.#options.announce(`A new episode with seed ${this.#episode?.session.seed ?? 'none'}.`);
  }

  /** Takes an action when those before it are done; true while the episode continues. */
  #act(action: Json): Promise<boolean> {
    // A key that comes late is no mistake.
    if (this.#episode?.isOver) return Promise.resolve(false);
    if (this.#waiting.length >= MAX_WAITING) {
      this.#options.announce(`${MAX_WAITING} actions wait already: this one was left out.`);
      return Promise.resolve(false);
    }
    const [turn, waiting] = [this.#turn, this.#waiting];
    waiting.push(action);
    this.#showPending();
    return this.#queue.run(async () => {
      // Dropped together with the others, or meant for an episode that has ended.
      if (waiting !== this.#waiting || turn !== this.#turn) return false;
      waiting.shift();
      this.#showPending();
      if (this.#episode?.isOver) return false;
      const before = this.#episode?.moves.length;
      if (!(await this.#attempt(episode => episode.step(action)))) {
        this.#dropWaiting();
        return false;
      }
      if (this.#episode?.isOver) this.#dropWaiting();
      if (this.#episode) this.#options.announce(stepReport(this.#episode));
      const last = this.#episode?.moves.at(-1);
      return (
        last !== undefined && this.#episode?.moves.length !== before && !last.terminated && !last.truncated
      );
    });
  }

  #dropWaiting(): void {
    this.#waiting = [];
    this.#showPending();
  }

  /** Names the actions that wait, or says that the server takes long. */
  #showPending(): void {
    const environment = this.#episode?.environment;
    const names = this.#waiting.slice(0, MAX_NAMED).map(action => {
      const named = environment ? namedAction(environment, action) : action;
      return typeof named === 'string' ? named : JSON.stringify(named);
    });
    const more = this.#waiting.length - names.length;
    const next = names.length === 0 ? '' : `Next: ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
    this.#pending.textContent = next || (this.#isSlow ? 'Waiting for the server …' : '');
  }

  async #goBack(): Promise<void> {
    this.#policy?.stop();
    // What waits is taken back first.
    this.#dropWaiting();
    const undone = await this.#queue.run(async () => {
      return this.#episode?.canUndo && this.#attempt(episode => episode.undo());
    });
    if (undone) this.#options.announce(`Back at step ${this.#episode?.moves.length}.`);
  }

  /** Does something to the episode and shows how it stands then, or what went wrong. */
  async #attempt(work: (episode: Episode) => Promise<void>): Promise<boolean> {
    const episode = this.#episode;
    if (!episode) return false;
    const done = this.#wait();
    try {
      await work(episode);
    } catch (error) {
      if (episode === this.#episode) this.#fail(error);
      return false;
    } finally {
      done();
    }
    if (episode !== this.#episode) return false;
    this.#note.clear();
    this.#refresh();
    return true;
  }

  #fail(error: unknown): void {
    this.#note.show(error);
    if (!(error instanceof RequestFailed) || !GONE.has(error.problem.code)) return;
    this.#gone = true;
    this.#note.element.append(h('p', {}, 'Reset opens a new session.'));
  }

  /** Says that the page waits, if it takes long. @returns to be called when it is done */
  #wait(): () => void {
    this.#underWay++;
    const timer = setTimeout(() => {
      this.#isSlow = true;
      this.#showPending();
    }, PENDING_AFTER_MS);
    return () => {
      clearTimeout(timer);
      this.#underWay--;
      if (this.#underWay > 0) return;
      this.#isSlow = false;
      this.#showPending();
    };
  }

  /** A key that was pressed anywhere on the page. */
  press(event: KeyboardEvent): void {
    const { target } = event;
    if (event.defaultPrevented || (target instanceof Element && target.closest(OWN_KEYS))) return;
    const name = keyOf(event);
    if (name === undefined || !this.#episode) return;
    const action = this.#pad?.keys.get(name);
    // A key held down repeats faster than the server answers: it adds nothing while an action waits.
    if (action !== undefined) {
      if (!event.repeat || this.#waiting.length === 0) this.#act(action);
    } else if (name === UNDO_KEY) this.#goBack();
    else if (name === POLICY_KEY) this.#policy?.one();
    else return;
    event.preventDefault();
  }

  #refresh(): void {
    const episode = this.#episode!;
    const { session, moves } = episode;
    const last = moves.at(-1);
    const hadFocus = this.element.contains(document.activeElement);
    this.#board.show({
      step: moves.length,
      steps: session.max_episode_steps,
      observation: episode.observation,
      structured: episode.structured,
      totalReward: episode.totalReward,
      info: {},
      ...last,
      ...(!episode.isOver && { act: action => void this.#act(action) }),
    });
    this.#play.dataset.wide = String(WIDE_BOARDS.has(this.#board.kind));
    this.#play.dataset.task = String(TASKS.has(this.#board.kind));
    this.#actions.inert = episode.isOver;
    this.#policyPlace.inert = episode.isOver;
    this.#play.dataset.over = String(episode.isOver);
    if (episode.isOver) this.#banner?.show(episode, episode.isDefault, hadFocus);
    else this.#banner?.hide();
    this.#intro!.seed = session.seed ?? undefined;
    const actions = moves.map(({ action }) => action);
    const fits = JSON.stringify(actions).length <= MAX_ADDRESS_LENGTH;
    this.#options.onaddress({ ...this.#intro!.address, actions: fits ? actions : [] });
    this.#undo.disabled = !episode.canUndo;
    fill(this.#undoProblem, episode.undoProblem);
    this.#options.onchange(moves);
    // What had the focus on the board is there no more: it stays in the board.
    if (hadFocus && document.activeElement === document.body)
      this.#board.focusTarget.focus({ preventScroll: true });
  }
}

/** True if the focus is in a field, where it must stay. */
function isTyping(): boolean {
  return document.activeElement?.matches('input, textarea, select') ?? false;
}
