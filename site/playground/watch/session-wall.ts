import { render } from 'preact';
import { Board } from '../../boards/board.ts';
import { fill, h, newId } from '../../components/element.ts';
import { endText, type Meanings } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import { PressHold } from '../../components/press-hold.ts';
import { type Address, formatAddress, type WatchAddress } from '../address.ts';
import { EnvironmentNames } from '../client/action-names.ts';
import type { Client } from '../client/client.ts';
import { SessionFeed } from '../client/session-feed.ts';
import type { EnvironmentSummary, Schemas, SessionCard } from '../client/wire.ts';
import { formatNumber, formatValue } from '../components/format.ts';

const PAUSE_MS = 250;
/** Open sessions of a page, as the server's default is. */
const PAGE_SIZE = 60;
/** The server counts no further. */
const MAX_COUNTED = 10_000;

/** Live boards of all sessions that one may see, newest first, those that have ended below. */
export class SessionWall {
  readonly #client: Client;
  readonly #place = h('div', {});
  readonly #hold = new PressHold(this.#place);
  readonly #note = h('p', { class: 'note bad problem', role: 'alert', hidden: true });
  readonly #status = h('p', { class: 'fine', role: 'status' }, 'Asking the server …');
  readonly #feed: SessionFeed;
  readonly #environments = h('select', { id: newId(), onchange: () => this.#refine() });
  readonly #group: HTMLInputElement;
  readonly #owner: HTMLInputElement;
  readonly #names: EnvironmentNames;
  readonly element: HTMLElement;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cards: readonly SessionCard[] = [];
  /** Open sessions that the filters let through. */
  #open = 0;
  #page = 1;
  readonly #onaddress: (address: Address) => void;

  /** @param onaddress the filters or the page have changed */
  constructor(client: Client, onaddress: (address: Address) => void) {
    this.#client = client;
    this.#onaddress = onaddress;
    this.#names = new EnvironmentNames(client, () =>
      this.#hold.change(() => this.#show(this.#cards, this.#open)),
    );
    this.#feed = new SessionFeed(
      client,
      (cards, open) => this.#hold.change(() => this.#show(cards, open)),
      detail => {
        this.#note.hidden = false;
        this.#note.textContent = detail;
      },
    );
    const field = () =>
      h('input', { id: newId(), type: 'search', autocomplete: 'off', oninput: () => this.#soon() });
    this.#group = field();
    this.#owner = field();
    fill(this.#environments, h('option', { value: '' }, 'all'));
    const pair = (label: string, control: HTMLElement) =>
      h('span', { class: 'pair' }, h('label', { for: control.id }, label), control);
    this.element = h(
      'section',
      { class: 'stack roomy wall', 'aria-labelledby': 'wall-title' },
      h('h1', { id: 'wall-title', tabindex: -1 }, 'Sessions'),
      h(
        'form',
        {
          class: 'row start',
          role: 'search',
          'aria-label': 'Sessions',
          onsubmit: (event: Event) => event.preventDefault(),
        },
        pair('Environment', this.#environments),
        pair('Group', this.#group),
        pair('Client', this.#owner),
        this.#status,
      ),
      this.#note,
      this.#place,
    );
  }

  start({ env = '', group = '', client = '', page = 1 }: WatchAddress): void {
    this.#group.value = group;
    this.#owner.value = client;
    this.#page = page;
    this.#choose(env);
    this.#feed.start(this.#filter);
    this.#offerEnvironments();
  }

  /** Chooses an environment, before the list of them has come as well. */
  #choose(envId: string): void {
    const known = [...this.#environments.options].some(({ value }) => value === envId);
    if (!known) this.#environments.append(h('option', { value: envId }, envId));
    this.#environments.value = envId;
  }

  stop(): void {
    this.#feed.stop();
  }

  get #filter() {
    return {
      env_id: this.#environments.value,
      group_id: this.#group.value.trim(),
      client: this.#owner.value.trim(),
      offset: (this.#page - 1) * PAGE_SIZE,
    };
  }

  #soon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#refine(), PAUSE_MS);
  }

  #refine(page = 1): void {
    this.#page = page;
    const { env_id: env, group_id: group, client } = this.#filter;
    this.#onaddress({ view: 'watch', env, group, client, page });
    this.#feed.filter = this.#filter;
  }

  async #offerEnvironments(): Promise<void> {
    if (this.#environments.options.length > 2) return;
    try {
      const { environments } = await this.#client.json<Schemas['EnvironmentList']>('GET', 'v1/envs', {
        quiet: true,
      });
      const chosen = this.#environments.value;
      fill(
        this.#environments,
        h('option', { value: '' }, 'all'),
        ...environments.map(({ env_id: id, title }: EnvironmentSummary) => h('option', { value: id }, title)),
      );
      this.#choose(chosen);
    } catch {
      // The feed says what is wrong with the server.
    }
  }

  #show(cards: readonly SessionCard[], open: number): void {
    this.#cards = cards;
    this.#open = open;
    this.#note.hidden = true;
    const ended = cards.filter(card => card.ended !== null).length;
    const count = open < MAX_COUNTED ? String(open) : `${MAX_COUNTED} or more`;
    this.#status.textContent = `${count} open, ${ended} ended in the last minute`;
    render(
      cards.length === 0
        ? html`<p class="hint empty">
            No session is open here. They appear as soon as somebody plays or trains, and stay for a minute after their
            end. <a href=${formatAddress({ view: 'play' })}>Play one yourself</a>.
          </p>`
        : html`${this.#pages(cards.length - ended, open)}<ul class="tiles of-13 cards">
            ${cards.map(
              card => html`<li key=${card.session_id}><${Card} card=${card} action=${this.#names.nameOf(card.env_id, card.action)}
              ends=${card.ended_by === undefined ? undefined : this.#names.endsOf(card.env_id)} /></li>`,
            )}
          </ul>`,
      this.#place,
    );
  }

  /** The way to newer and older sessions, where they do not fit on one page. */
  #pages(shown: number, open: number) {
    if (open <= PAGE_SIZE && this.#page === 1) return '';
    const first = (this.#page - 1) * PAGE_SIZE;
    const turn = (by: number) => () => this.#refine(this.#page + by);
    return html`<nav class="row" aria-label="Pages of sessions">
      <button type="button" disabled=${this.#page === 1} onClick=${turn(-1)}>Newer</button>
      <span>${shown === 0 ? 'none' : `${first + 1} to ${first + shown}`} of ${open}</span>
      <button type="button" disabled=${first + shown >= open} onClick=${turn(1)}>Older</button>
    </nav>`;
  }
}

interface CardProps {
  readonly card: SessionCard;
  /** The last action, by its name. */
  readonly action: unknown;
  /** Meanings of the environment's ends. */
  readonly ends?: Meanings;
}

function Card({ card, action, ends }: CardProps) {
  const { session_id: id, env_id: envId, step, ended, group_id: group } = card;
  const status = statusOf(card, ends);
  return html`<article class="card" data-ended=${ended !== null}>
    <div class="picture" aria-hidden="true" inert>
      <${Board} key=${card.episode_id} state=${card.structured} text=${card.text} />
    </div>
    <h2><a class="whole" href=${formatAddress({ view: 'watch', sessionId: id })}>${envId}</a></h2>
    <p><span class=${`chip ${status.tone}`}>${status.text}</span></p>
    <dl class="row">
      <div class="pair"><dt class="label">Turn</dt><dd>${step} of ${card.max_episode_steps}</dd></div>
      <div class="pair"><dt class="label">Return</dt><dd>${formatNumber(card.return)}</dd></div>
    </dl>
    <p class="label code cut card-action" title=${action === undefined ? '' : formatValue(action)}>
      ${action === undefined ? 'no action yet' : formatValue(action)}
    </p>
    ${group && html`<p class="label code cut">group ${group}</p>`}
  </article>`;
}

function statusOf(card: SessionCard, ends?: Meanings) {
  const { ended, terminated, truncated, failed, success, ended_by: end } = card;
  if (failed) return { text: 'failed', tone: 'bad' };
  const text = end === undefined ? undefined : endText(end, ends);
  if (terminated)
    return success ? { text: text ?? 'solved', tone: 'good' } : { text: text ?? 'not solved', tone: 'bad' };
  if (truncated) return { text: text ?? 'cut short', tone: 'warn' };
  return ended === null ? { text: 'playing', tone: '' } : { text: 'left', tone: '' };
}
