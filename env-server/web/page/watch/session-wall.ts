import { render } from 'preact';
import { Board } from '../../../../shared/web/boards/board.ts';
import { fill, h, newId } from '../../../../shared/web/element.ts';
import { html } from '../../../../shared/web/html.ts';
import { PressHold } from '../../../../shared/web/press-hold.ts';
import { formatAddress } from '../address.ts';
import { ActionNames } from '../client/action-names.ts';
import type { Client } from '../client/client.ts';
import { SessionFeed } from '../client/session-feed.ts';
import type { EnvironmentSummary, Schemas, SessionCard } from '../client/wire.ts';
import { formatNumber, formatValue } from '../components/format.ts';

const PAUSE_MS = 250;

/** Live boards of all sessions that one may see, newest first, those that have ended below. */
export class SessionWall {
  readonly #client: Client;
  readonly #place = h('div', {});
  readonly #hold = new PressHold(this.#place);
  readonly #note = h('p', { class: 'problem', role: 'alert', hidden: true });
  readonly #status = h('p', { class: 'fine', role: 'status' }, 'Asking the server …');
  readonly #feed: SessionFeed;
  readonly #environments = h('select', { id: newId(), onchange: () => this.#refine() });
  readonly #group: HTMLInputElement;
  readonly #owner: HTMLInputElement;
  readonly #actionNames: ActionNames;
  readonly element: HTMLElement;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cards: readonly SessionCard[] = [];

  constructor(client: Client) {
    this.#client = client;
    this.#actionNames = new ActionNames(client, () => this.#hold.change(() => this.#show(this.#cards)));
    this.#feed = new SessionFeed(
      client,
      cards => this.#hold.change(() => this.#show(cards)),
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
      { class: 'wall', 'aria-labelledby': 'wall-title' },
      h('h1', { id: 'wall-title', tabindex: -1 }, 'Sessions'),
      h(
        'form',
        {
          class: 'start',
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

  start(): void {
    this.#feed.start(this.#filter);
    this.#offerEnvironments();
  }

  stop(): void {
    this.#feed.stop();
  }

  get #filter() {
    return {
      env_id: this.#environments.value,
      group_id: this.#group.value.trim(),
      client: this.#owner.value.trim(),
    };
  }

  #soon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#refine(), PAUSE_MS);
  }

  #refine(): void {
    this.#feed.filter = this.#filter;
  }

  async #offerEnvironments(): Promise<void> {
    if (this.#environments.options.length > 1) return;
    try {
      const { environments } = await this.#client.json<Schemas['EnvironmentList']>('GET', 'v1/envs', {
        quiet: true,
      });
      this.#environments.append(
        ...environments.map(({ env_id: id, title }: EnvironmentSummary) => h('option', { value: id }, title)),
      );
    } catch {
      // The feed says what is wrong with the server.
    }
  }

  #show(cards: readonly SessionCard[]): void {
    this.#cards = cards;
    this.#note.hidden = true;
    const open = cards.filter(({ ended }) => ended === null).length;
    this.#status.textContent = `${open} open, ${cards.length - open} ended in the last minute`;
    render(
      cards.length === 0
        ? html`<p class="empty">
            No session is open here. They appear as soon as somebody plays or trains, and stay for a minute after their
            end. <a href=${formatAddress({ view: 'play' })}>Play one yourself</a>.
          </p>`
        : html`<ul class="cards">
            ${cards.map(card => html`<li key=${card.session_id}><${Card} card=${card} action=${this.#actionNames.nameOf(card.env_id, card.action)} /></li>`)}
          </ul>`,
      this.#place,
    );
  }
}

interface CardProps {
  readonly card: SessionCard;
  /** The last action, by its name. */
  readonly action: unknown;
}

function Card({ card, action }: CardProps) {
  const { session_id: id, env_id: envId, step, ended, group_id: group } = card;
  const status = statusOf(card);
  return html`<article class="card" data-ended=${ended !== null}>
    <div class="card-board" aria-hidden="true" inert>
      <${Board} key=${card.episode_id} state=${card.structured} text=${card.text} />
    </div>
    <h2><a class="card-link" href=${formatAddress({ view: 'watch', sessionId: id })}>${envId}</a></h2>
    <p class="card-status"><span class=${`chip ${status.tone}`}>${status.text}</span></p>
    <dl class="card-figures">
      <div><dt>Turn</dt><dd>${step} of ${card.max_episode_steps}</dd></div>
      <div><dt>Return</dt><dd>${formatNumber(card.return)}</dd></div>
    </dl>
    <p class="card-action" title=${action === undefined ? '' : formatValue(action)}>
      ${action === undefined ? 'no action yet' : formatValue(action)}
    </p>
    ${group && html`<p class="card-group">group ${group}</p>`}
  </article>`;
}

function statusOf({ ended, terminated, truncated, failed, success }: SessionCard) {
  if (failed) return { text: 'failed', tone: 'bad' };
  if (terminated) return success ? { text: 'solved', tone: 'good' } : { text: 'not solved', tone: 'bad' };
  if (truncated) return { text: 'cut short', tone: 'warn' };
  return ended === null ? { text: 'playing', tone: '' } : { text: 'left', tone: '' };
}
