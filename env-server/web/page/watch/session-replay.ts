import type { Json, JsonObject } from '../../../../shared/json.ts';
import { h, newId } from '../../../../shared/web/element.ts';
import { formatAddress } from '../address.ts';
import { type Client, environmentPath, sessionPath } from '../client/client.ts';
import { Poll } from '../client/poll.ts';
import type { Environment, SessionDetail, TrajectoryRecord } from '../client/wire.ts';
import { Board } from '../components/board.ts';
import { formatNumber, formatValue } from '../components/format.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { Transcript } from '../components/transcript.ts';
import type { PlayRequest } from '../play/environment-intro.ts';
import { moveOf, readTrajectory } from '../play/episode.ts';
import { ReplayFrames } from './replay-frames.ts';

const LOOK_MS = 1000;
const PACE_MS = 500;

/** A session that somebody plays: followed live, or stepped through. */
export class SessionReplay {
  readonly #client: Client;
  readonly #sessionId: string;
  readonly #playOnHere: (request: PlayRequest) => void;
  readonly #board = new Board();
  readonly #transcript = new Transcript();
  readonly #note = new ProblemNote();
  readonly #pictureNote = new ProblemNote();
  readonly #title = h('h1', { tabindex: -1 });
  readonly #about = h('p', { class: 'fine' });
  readonly #follow = h('input', {
    id: newId(),
    type: 'checkbox',
    checked: true,
    onchange: () => this.#goTo(this.#last),
  });
  readonly #slider = h('input', {
    id: newId(),
    type: 'range',
    min: 0,
    max: 0,
    step: 1,
    oninput: () => this.#choose(this.#slider.valueAsNumber),
  });
  readonly #run = h(
    'button',
    { type: 'button', onclick: () => (this.#timer ? this.#pause() : this.#playOn()) },
    'Replay',
  );
  readonly #carryOver = h(
    'button',
    { type: 'button', disabled: true, onclick: () => this.#playOnHere(this.#carriedOver()) },
    'Play on from here',
  );
  readonly #poll = new Poll(LOOK_MS, () => this.#look());
  readonly element: HTMLElement;
  #session: SessionDetail | undefined;
  #hasPictures = false;
  #records: readonly TrajectoryRecord[] = [];
  #position = 0;
  #film: ReplayFrames | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param playOn carries an episode over into a session of the visitor's own */
  constructor(client: Client, sessionId: string, playOn: (request: PlayRequest) => void) {
    this.#client = client;
    this.#sessionId = sessionId;
    this.#playOnHere = playOn;
    this.#title.textContent = `Session ${sessionId}`;
    const button = (text: string, position: () => number) =>
      h('button', { type: 'button', onclick: () => this.#choose(position()) }, text);
    this.element = h(
      'section',
      { class: 'replay', 'aria-label': 'Session' },
      h('p', {}, h('a', { href: formatAddress({ view: 'watch' }) }, '← All sessions')),
      this.#title,
      this.#about,
      this.#note.element,
      h(
        'div',
        { class: 'replay-columns' },
        h(
          'div',
          { class: 'play' },
          this.#board.element,
          this.#pictureNote.element,
          h('div', { class: 'slider' }, h('label', { for: this.#slider.id }, 'Step'), this.#slider),
          h(
            'div',
            { class: 'turns', role: 'group', 'aria-label': 'Replay' },
            button('First', () => 0),
            button('Back', () => this.#position - 1),
            this.#run,
            button('Next', () => this.#position + 1),
            button('Last', () => this.#last),
            h('span', { class: 'check' }, this.#follow, h('label', { for: this.#follow.id }, 'Follow live')),
          ),
          this.#board.infoElement,
          h('p', {}, this.#carryOver),
          h(
            'p',
            { class: 'hint' },
            'In a session of your own; this one stays as it is. Watching keeps it from expiring.',
          ),
        ),
        h(
          'section',
          { class: 'panel', 'aria-labelledby': 'replay-steps' },
          h('div', { class: 'panel-head' }, h('h2', { id: 'replay-steps' }, 'Steps up to here')),
          this.#transcript.element,
        ),
      ),
    );
  }

  start(): void {
    this.#poll.start();
  }

  stop(): void {
    this.#poll.stop();
    this.#pause();
    this.#film?.close();
  }

  get #last(): number {
    return Math.max(0, this.#records.length - 1);
  }

  async #look(): Promise<void> {
    await this.#note.around(async () => {
      const session = await this.#client.json<SessionDetail>('GET', sessionPath(this.#sessionId), {
        quiet: true,
      });
      const known = this.#session;
      if (known?.episode_id === session.episode_id && known.step === session.step) return;
      if (!known) await this.#introduce(session);
      this.#records = await readTrajectory(this.#client, this.#sessionId);
      if (known?.episode_id !== session.episode_id) {
        this.#film?.close();
        this.#film = new ReplayFrames(this.#client, session);
        this.#position = 0;
      }
      this.#session = session;
      this.#carryOver.disabled = false;
      this.#goTo(this.#follow.checked ? this.#last : Math.min(this.#position, this.#last));
    });
  }

  async #introduce(session: SessionDetail): Promise<void> {
    const path = environmentPath(session.env_id);
    const environment = await this.#client.json<Environment>('GET', path, { quiet: true });
    this.#hasPictures = environment.capabilities.render;
    this.#title.textContent = environment.title;
    this.#about.replaceChildren(
      h('code', {}, session.env_id),
      ' session ',
      h('code', {}, session.session_id),
    );
  }

  /** Goes where the visitor wants to look, and stays there. */
  #choose(position: number): void {
    this.#pause();
    this.#follow.checked = false;
    this.#goTo(position);
  }

  #goTo(position: number): void {
    const session = this.#session;
    if (!session) return;
    this.#position = Math.max(0, Math.min(position, this.#last));
    const record = this.#records[this.#position];
    const moves = this.#records.slice(1, this.#position + 1).map(moveOf);
    const totalReward = moves.reduce((sum, { reward }) => sum + reward, 0);
    this.#slider.max = String(this.#last);
    this.#slider.value = String(this.#position);
    this.#slider.setAttribute(
      'aria-valuetext',
      record.type === 'reset'
        ? 'the start'
        : `${this.#position} of ${this.#last}: ${formatValue(record.action)}, reward ${formatNumber(record.reward ?? 0)}`,
    );
    this.#board.show({ ...record, steps: session.max_episode_steps, seed: session.seed, totalReward });
    this.#transcript.show(moves);
    this.#paint(this.#position);
  }

  async #paint(position: number): Promise<void> {
    if (!this.#hasPictures) return;
    await this.#pictureNote.around(() =>
      this.#board.paint(position, this.#film!.frame(position, this.#records)),
    );
  }

  #playOn(): void {
    this.#follow.checked = false;
    this.#run.textContent = 'Stop';
    if (this.#position >= this.#last) this.#goTo(0);
    this.#timer = setInterval(() => {
      this.#goTo(this.#position + 1);
      if (this.#position >= this.#last) this.#pause();
    }, PACE_MS);
  }

  #pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#run.textContent = 'Replay';
  }

  #carriedOver(): PlayRequest {
    const { env_id, config, wrappers, options, observation_format, seed } = this.#session!;
    return {
      envId: env_id,
      seed: seed ?? undefined,
      setup: {
        config: config as JsonObject,
        wrappers,
        options: options as JsonObject,
        format: observation_format,
      },
      actions: this.#records.slice(1, this.#position + 1).map(({ action }) => action as Json),
    };
  }
}
