import type { Json } from '../../../shared/json.ts';
import { h, newId } from '../../components/element.ts';
import { formatAddress, type PlayAddress } from '../address.ts';
import { namedAction } from '../client/action-names.ts';
import { type Client, environmentPath, sessionPath } from '../client/client.ts';
import { SessionFeed } from '../client/session-feed.ts';
import type { Environment, Replay } from '../client/wire.ts';
import { BoardView } from '../components/board.ts';
import { formatNumber, formatValue } from '../components/format.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { Transcript } from '../components/transcript.ts';
import { moveOf } from '../play/episode.ts';

const PACE_MS = 600;
/** Between two questions for new steps, in milliseconds. */
const LOOK_MS = 700;

type ReplayRecord = Replay['records'][number];

/** One session step by step: live as it is played, or through its past, for a minute after its end, too. */
export class SessionReplay {
  readonly #client: Client;
  readonly #sessionId: string;
  readonly #title = h('h1', { tabindex: -1 });
  readonly #about = h('p', { class: 'fine' });
  readonly #note = new ProblemNote();
  readonly #board = new BoardView();
  readonly #said = h('pre', { tabindex: 0, role: 'region', 'aria-label': 'Action in full' });
  readonly #transcript = new Transcript();
  readonly #follow = h('input', {
    id: newId(),
    type: 'checkbox',
    checked: true,
    onchange: () => this.#follow.checked && this.#goTo(this.#last),
  });
  readonly #slider = h('input', {
    id: newId(),
    type: 'range',
    class: 'grow',
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
  readonly #carryOver = h('a', { class: 'button primary' }, 'Play on from here');
  readonly #feed: SessionFeed;
  readonly element: HTMLElement;
  #session: Replay['session'] | undefined;
  #environment: Environment | undefined;
  #records: ReplayRecord[] = [];
  #position = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  #looking = false;
  #again = false;
  #stopped = false;

  constructor(client: Client, sessionId: string) {
    this.#client = client;
    this.#sessionId = sessionId;
    this.#title.textContent = 'Session';
    this.#feed = new SessionFeed(
      client,
      cards => {
        const card = cards.find(({ session_id: id }) => id === sessionId);
        const { episode_id: episode, step, ended } = this.#session ?? {};
        if (card && (card.episode_id !== episode || card.step !== step || card.ended !== ended)) this.#look();
      },
      () => {},
    );
    const button = (text: string, position: () => number) =>
      h('button', { type: 'button', onclick: () => this.#choose(position()) }, text);
    this.#carryOver.hidden = true;
    this.element = h(
      'section',
      { class: 'stack roomy replay', 'aria-label': 'Session' },
      h('p', {}, h('a', { href: formatAddress({ view: 'watch' }) }, '← All sessions')),
      this.#title,
      this.#about,
      this.#note.element,
      h(
        'div',
        { class: 'columns' },
        h(
          'div',
          { class: 'panel play' },
          this.#board.figures,
          this.#board.focusTarget,
          h('div', { class: 'pair slider' }, h('label', { for: this.#slider.id }, 'Step'), this.#slider),
          h(
            'div',
            { class: 'row turns', role: 'group', 'aria-label': 'Replay' },
            button('First', () => 0),
            button('Back', () => this.#position - 1),
            this.#run,
            button('Next', () => this.#position + 1),
            button('Last', () => this.#last),
            h('span', { class: 'check' }, this.#follow, h('label', { for: this.#follow.id }, 'Follow live')),
            this.#carryOver,
          ),
        ),
        h(
          'div',
          { class: 'stack roomy side' },
          h('section', { class: 'panel', 'aria-label': 'Action' }, h('h2', {}, 'Action'), this.#said),
          h(
            'section',
            { class: 'panel', 'aria-labelledby': 'replay-steps' },
            h('div', { class: 'panel-head' }, h('h2', { id: 'replay-steps' }, 'Steps up to here')),
            this.#transcript.element,
          ),
          this.#board.textElement,
          this.#board.infoElement,
        ),
      ),
    );
  }

  start(): void {
    this.#look().then(() => {
      const { env_id, group_id } = this.#session ?? {};
      if (!this.#stopped && this.#session?.ended === null)
        this.#feed.start({ env_id, group_id: group_id ?? undefined });
    });
  }

  stop(): void {
    this.#stopped = true;
    this.#feed.stop();
    this.#pause();
  }

  get #last(): number {
    return Math.max(0, this.#records.length - 1);
  }

  /** Asks for the steps that are new; one question at a time, with a pause after it. */
  async #look(): Promise<void> {
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    await this.#note.around(() => this.#read());
    setTimeout(() => {
      this.#looking = false;
      if (!this.#again || this.#stopped) return;
      this.#again = false;
      this.#look();
    }, LOOK_MS);
  }

  async #read(): Promise<void> {
    const known = this.#session;
    let replay = await this.#ask(this.#records.length === 0 ? 0 : this.#records.at(-1)!.step + 1);
    if (known && replay.session.episode_id !== known.episode_id) {
      this.#records = [];
      this.#position = 0;
      replay = await this.#ask(0);
    }
    if (!known) await this.#introduce(replay.session);
    this.#session = replay.session;
    this.#records.push(...replay.records);
    while (replay.next !== null) {
      replay = await this.#ask(replay.next);
      this.#records.push(...replay.records);
    }
    this.#goTo(this.#follow.checked ? this.#last : Math.min(this.#position, this.#last));
  }

  #ask(from: number): Promise<Replay> {
    return this.#client.json('GET', `${sessionPath(this.#sessionId, 'replay')}?from=${from}`, {
      quiet: true,
    });
  }

  async #introduce({ env_id: envId, session_id: id }: Replay['session']): Promise<void> {
    this.#environment = await this.#client.json<Environment>('GET', environmentPath(envId), { quiet: true });
    this.#title.textContent = this.#environment.title;
    this.#about.replaceChildren(h('code', {}, envId), ' session ', h('code', {}, id));
  }

  /** Goes where the visitor wants to look, and stays there. */
  #choose(position: number): void {
    this.#pause();
    this.#follow.checked = false;
    this.#goTo(position);
  }

  #goTo(position: number): void {
    const session = this.#session;
    const environment = this.#environment;
    if (!session || !environment || this.#records.length === 0) return;
    this.#position = Math.max(0, Math.min(position, this.#last));
    const record = this.#records[this.#position];
    const named = namedAction(environment, record.action);
    const moves = this.#records
      .slice(1, this.#position + 1)
      .map(moveOf)
      .map(move => ({ ...move, action: namedAction(environment, move.action) }));
    const totalReward = moves.reduce((sum, { reward }) => sum + reward, 0);
    this.#slider.max = String(this.#last);
    this.#slider.value = String(this.#position);
    const isStart = this.#position === 0;
    this.#slider.setAttribute(
      'aria-valuetext',
      isStart
        ? 'the start'
        : `${this.#position} of ${this.#last}: ${formatValue(named)}, reward ${formatNumber(record.reward ?? 0)}`,
    );
    this.#said.textContent = isStart ? 'The start.' : formatValue(named, 2);
    const { observation, structured, reward, terminated, truncated, info, step } = record;
    this.#board.show({
      observation,
      structured,
      action: isStart ? undefined : named,
      reward,
      terminated,
      truncated,
      info,
      step,
      steps: session.max_episode_steps,
      seed: session.seed,
      totalReward,
    });
    this.#transcript.show(moves);
    this.#carryOver.hidden = false;
    this.#carryOver.href = formatAddress(this.#carriedOver(session));
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

  /** The address that opens a session of the visitor's in the state that is looked at. */
  #carriedOver({ env_id, config, wrappers, options, seed }: Replay['session']): PlayAddress {
    return {
      view: 'play',
      envId: env_id,
      seed: seed ?? undefined,
      config: config as PlayAddress['config'],
      wrappers: wrappers as unknown as Json[],
      options: options as PlayAddress['options'],
      actions: this.#records.slice(1, this.#position + 1).map(({ action }) => action as Json),
    };
  }
}
