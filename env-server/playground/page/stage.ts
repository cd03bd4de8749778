import type { Json } from '../../../shared/json.ts';
import { fill, h, newId } from '../../../shared/web/element.ts';
import { aboutEnvironment, rulesOf } from './about-environment.ts';
import { ActionPad } from './action-pad.ts';
import { formatAddress } from './address.ts';
import { Board } from './board.ts';
import { type Client, environmentPath, RequestFailed } from './client.ts';
import { Episode, type Move, type Setup } from './episode.ts';
import { Guide } from './guide.ts';
import { keyOf } from './keys.ts';
import { ProblemNote } from './problem-note.ts';
import { SetupPanel } from './setup-panel.ts';
import { StartBar } from './start-bar.ts';
import { stepReport } from './step-report.ts';
import type { Environment } from './wire.ts';

/** What is to be played, and from where. */
export interface PlayRequest {
  readonly envId: string;
  readonly preset?: string;
  readonly seed?: number;
  readonly setup?: Setup;
  /** Taken at once: an episode that was begun elsewhere. */
  readonly actions?: readonly Json[];
}

/** Actions that wait for the one under way; more of them are a key held down. */
const MOST_WAITING = 4;
const UNDO_KEY = 'Backspace';
const GUIDE_KEY = '.';
/** Problems of a session that is there no more. */
const GONE: ReadonlySet<string | undefined> = new Set([
  'unknown_session',
  'session_expired',
  'session_closed',
]);

interface StageOptions {
  /** Reads out to those who do not see the page. */
  readonly announce: (text: string) => void;
  /** Is told of every change of the episode. */
  readonly onchange: (moves: readonly Move[]) => void;
}

/** Where an environment is played. Owns the episode that is under way. */
export class Stage {
  readonly #client: Client;
  readonly #options: StageOptions;
  readonly #title = h('h1', { tabindex: -1 });
  readonly #note = new ProblemNote();
  readonly #board = new Board();
  readonly #undo = h(
    'button',
    { type: 'button', 'aria-keyshortcuts': UNDO_KEY, onclick: () => this.#goBack() },
    'Undo',
    h('kbd', { 'aria-hidden': 'true' }, '⌫'),
  );
  readonly #undoProblem = h('p', { class: 'hint', id: newId() });
  readonly #about = h('div', {});
  readonly #actions = h('div', {});
  readonly #guidance = h('div', {});
  readonly #play = h(
    'div',
    { class: 'play', hidden: true },
    this.#board.element,
    this.#actions,
    this.#note.element,
    this.#board.infoElement,
    h('div', { class: 'turns' }, this.#undo, this.#guidance),
    this.#undoProblem,
    h('p', { class: 'hint' }, 'Keys act while the focus is in this part of the page and not in a field.'),
  );
  readonly #start = h('div', { class: 'before-play' });
  readonly #loadNote = new ProblemNote();
  readonly element = h(
    'section',
    {
      class: 'stage',
      'aria-label': 'Play',
      tabindex: -1,
      onkeydown: (event: KeyboardEvent) => this.#press(event),
    },
    this.#loadNote.element,
    this.#about,
    this.#start,
    this.#play,
  );
  #envId = '';
  #bar: StartBar | undefined;
  #setup: SetupPanel | undefined;
  #pad: ActionPad | undefined;
  #guide: Guide | undefined;
  #episode: Episode | undefined;
  /** The session ended on the server; the next start opens another one. */
  #gone = false;
  /** Episodes that the server was asked for; the last one counts. */
  #beginning = 0;
  #waiting = 0;
  #tail: Promise<unknown> = Promise.resolve();
  #turn = 0;

  constructor(client: Client, options: StageOptions) {
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
    this.#envId = request.envId;
    this.#title.textContent = request.envId;
    fill(this.#start);
    await this.#loadNote.around(async () => {
      const path = environmentPath(request.envId);
      const environment = await this.#client.json<Environment>('GET', path, { quiet: true });
      if (turn !== this.#turn) return;
      this.#lay(environment, request);
      await this.#begin(request.seed, request.actions);
      if (focus && turn === this.#turn) this.#focus();
    });
    if (turn !== this.#turn || this.#episode) return;
    if (this.#setup === undefined) fill(this.#about, this.#title);
    if (focus) this.#title.focus();
  }

  /** Ends the episode and its session. */
  close(): void {
    this.#turn++;
    this.#guide?.stop();
    const episode = this.#episode;
    this.#episode = undefined;
    this.#setup = undefined;
    this.#pad = undefined;
    this.#play.hidden = true;
    fill(this.#actions);
    if (episode && !this.#gone) {
      // The session would expire anyway, and the visitor has left it.
      episode.close().catch(() => {});
    }
  }

  #focus(): void {
    (this.#pad?.field ?? this.#board.focusTarget).focus({ preventScroll: true });
  }

  /** Puts the parts together that belong to an environment rather than to an episode. */
  #lay(environment: Environment, { preset, seed, setup }: PlayRequest): void {
    fill(this.#about, aboutEnvironment(environment, this.#title));
    this.#setup = new SetupPanel(this.#client, environment, () => this.#startOver(this.#bar?.seed));
    this.#setup.preset = preset;
    if (setup) this.#setup.adopt(setup);
    this.#bar = new StartBar(environment, {
      choose: name => {
        this.#setup!.preset = name;
        this.#startOver(this.#bar?.seed);
      },
      reset: given => this.#reset(given),
    });
    this.#bar.preset = preset ?? (setup?.config.preset as string | undefined);
    this.#bar.seed = seed;
    fill(
      this.#start,
      this.#bar.element,
      h('div', { class: 'folded' }, rulesOf(environment), this.#setup.element),
    );
  }

  /** A new session with what is set. */
  async #startOver(seed: number | undefined): Promise<void> {
    const turn = ++this.#turn;
    this.#guide?.stop();
    const old = this.#gone ? undefined : this.#episode;
    await this.#note.around(async () => {
      await this.#begin(seed);
      if (turn === this.#turn && old !== this.#episode) await old?.close();
    });
  }

  async #begin(seed: number | undefined, actions: readonly Json[] = []): Promise<void> {
    const turn = this.#turn;
    this.#beginning++;
    try {
      const episode = await this.#newEpisode(this.#setup!, seed);
      if (actions.length > 0) await episode?.repeat(actions);
      if (turn === this.#turn && episode) this.#take(episode);
      else await episode?.close();
    } finally {
      this.#beginning--;
    }
  }

  /** Undefined when the setup was refused, which its fields tell. */
  async #newEpisode(panel: SetupPanel, seed: number | undefined): Promise<Episode | undefined> {
    const environment = await panel.check();
    if (!environment) return undefined;
    try {
      return await Episode.begin(this.#client, environment, panel.setup, seed);
    } catch (error) {
      panel.showFailure(error);
      return undefined;
    }
  }

  #take(episode: Episode): void {
    const { environment } = episode;
    this.#episode = episode;
    this.#gone = false;
    this.#note.clear();
    this.#pad = new ActionPad(environment, action => this.#act(action));
    this.#guide = new Guide(environment, {
      plan: policy => episode.plan(policy),
      act: action => this.#act(action),
      say: this.#options.announce,
      fail: error => this.#fail(error),
    });
    fill(this.#actions, this.#pad.element);
    fill(this.#guidance, this.#guide.element);
    this.#play.hidden = false;
    this.#refresh();
  }

  async #reset(seed: number | undefined): Promise<void> {
    if (this.#gone || !this.#episode || this.#beginning > 0) {
      await this.#startOver(seed);
      return;
    }
    this.#guide?.stop();
    const done = await this.#attempt(episode => episode.reset(seed));
    if (done) this.#options.announce(`A new episode with seed ${this.#episode?.session.seed ?? 'none'}.`);
  }

  /** Takes an action when those before it are done; true while the episode goes on. */
  #act(action: Json): Promise<boolean> {
    if (this.#waiting >= MOST_WAITING) return Promise.resolve(false);
    this.#waiting++;
    const done = this.#tail.then(async () => {
      this.#waiting--;
      const before = this.#episode?.moves.length;
      if (!(await this.#attempt(episode => episode.step(action)))) return false;
      if (this.#episode) this.#options.announce(stepReport(this.#episode));
      const last = this.#episode?.moves.at(-1);
      return (
        last !== undefined && this.#episode?.moves.length !== before && !last.terminated && !last.truncated
      );
    });
    this.#tail = done;
    return done;
  }

  async #goBack(): Promise<void> {
    this.#guide?.stop();
    await this.#tail;
    if (!this.#episode?.canUndo) return;
    if (await this.#attempt(episode => episode.undo())) {
      this.#options.announce(`Back at step ${this.#episode?.moves.length}.`);
    }
  }

  /** Does something to the episode and shows how it stands then, or what went wrong. */
  async #attempt(work: (episode: Episode) => Promise<void>): Promise<boolean> {
    const episode = this.#episode;
    if (!episode) return false;
    try {
      await work(episode);
    } catch (error) {
      this.#fail(error);
      return false;
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

  #press(event: KeyboardEvent): void {
    const { target } = event;
    if (target instanceof Element && target.matches('input, textarea, select, summary')) return;
    const name = keyOf(event);
    if (name === undefined) return;
    const action = this.#pad?.keys.get(name);
    if (action !== undefined) this.#act(action);
    else if (name === UNDO_KEY) this.#goBack();
    else if (name === GUIDE_KEY) this.#guide?.one();
    else return;
    event.preventDefault();
  }

  #refresh(): void {
    const episode = this.#episode!;
    const { environment, session, moves } = episode;
    const last = moves.at(-1);
    this.#board.show({
      step: moves.length,
      steps: environment.max_episode_steps,
      observation: episode.observation,
      totalReward: episode.totalReward,
      info: {},
      ...last,
    });
    this.#bar!.seed = session.seed ?? undefined;
    this.#undo.disabled = !episode.canUndo;
    fill(this.#undoProblem, episode.undoProblem);
    this.#options.onchange(moves);
    history.replaceState(
      null,
      '',
      formatAddress({
        view: 'play',
        envId: this.#envId,
        preset: this.#bar!.preset,
        seed: session.seed ?? undefined,
      }),
    );
    this.#paint(episode);
  }

  async #paint(episode: Episode): Promise<void> {
    const picture = episode.environment.capabilities.render ? episode.picture() : undefined;
    try {
      await this.#board.paint(episode.moves.length, picture);
    } catch (error) {
      if (episode === this.#episode) this.#fail(error);
    }
  }
}
