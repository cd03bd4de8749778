import { fill, h, newId } from '../../../../shared/web/element.ts';
import { formatAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import { Poll } from '../client/poll.ts';
import type { Schemas, Session } from '../client/wire.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { FILM_GROUP } from './replay-frames.ts';

const PAGE_SIZE = 50;
const REFRESH_MS = 2000;
const MS_PER_MINUTE = 60_000;

/** The open sessions that the server shows this visitor, page by page, kept up to date. */
export class SessionList {
  readonly #client: Client;
  readonly #note = new ProblemNote();
  readonly #rows = h('tbody', {});
  readonly #count = h('p', { class: 'fine' });
  readonly #environments = h('select', { id: newId(), onchange: () => this.#turnTo(undefined) });
  readonly #first = h('button', { type: 'button', onclick: () => this.#turnTo(undefined) }, 'First page');
  readonly #next = h(
    'button',
    { type: 'button', onclick: () => this.#turnTo(this.#nextCursor) },
    'Next page',
  );
  readonly #poll = new Poll(REFRESH_MS, () => this.#refresh());
  readonly element: HTMLElement;
  #cursor: string | undefined;
  #nextCursor: string | undefined;

  constructor(client: Client) {
    this.#client = client;
    const heading = (name: string, type?: string) => h('th', { scope: 'col', class: type }, name);
    this.element = h(
      'div',
      { class: 'sessions' },
      h('h1', { id: 'sessions-title', tabindex: -1 }, 'Open sessions'),
      h(
        'p',
        { class: 'prose' },
        'Every session that your token may see, oldest first. Choose one to follow it live or to step through its episode.',
      ),
      h(
        'p',
        { class: 'start' },
        h('label', { for: this.#environments.id }, 'Environment'),
        this.#environments,
      ),
      this.#note.element,
      h(
        'div',
        { class: 'scroll wide', tabindex: 0, role: 'region', 'aria-labelledby': 'sessions-title' },
        h(
          'table',
          {},
          h(
            'thead',
            {},
            h(
              'tr',
              {},
              heading('Session'),
              heading('Environment'),
              heading('Group'),
              heading('Step', 'number'),
              heading('Seed', 'number'),
              heading('Expires in', 'number'),
            ),
          ),
          this.#rows,
        ),
      ),
      this.#count,
      h('p', { class: 'start' }, this.#first, this.#next),
    );
  }

  async start(): Promise<void> {
    await this.#note.around(async () => {
      const { environments } = await this.#client.json<Schemas['EnvironmentList']>('GET', 'v1/envs', {
        quiet: true,
      });
      const { value } = this.#environments;
      fill(
        this.#environments,
        h('option', { value: '' }, 'all'),
        ...environments.map(({ env_id: id }) => h('option', { value: id, selected: id === value }, id)),
      );
    });
    this.#poll.start();
  }

  stop(): void {
    this.#poll.stop();
  }

  #turnTo(cursor: string | undefined): void {
    this.#cursor = cursor;
    this.#poll.start();
  }

  async #refresh(): Promise<void> {
    const query = new URLSearchParams({ limit: String(PAGE_SIZE) });
    if (this.#cursor !== undefined) query.set('cursor', this.#cursor);
    if (this.#environments.value !== '') query.set('env_id', this.#environments.value);
    await this.#note.around(async () => {
      const page = await this.#client.json<Schemas['SessionPage']>('GET', `v1/sessions?${query}`, {
        quiet: true,
      });
      this.#nextCursor = page.next_cursor ?? undefined;
      this.#first.hidden = this.#cursor === undefined;
      this.#next.hidden = this.#nextCursor === undefined;
      this.#show(page.sessions.filter(session => session.group_id !== FILM_GROUP));
    });
  }

  #show(sessions: readonly Session[]): void {
    const focused = this.#rows.contains(document.activeElement) ? document.activeElement?.id : undefined;
    fill(this.#rows, ...sessions.map(row));
    if (focused) document.getElementById(focused)?.focus();
    fill(this.#count, sessions.length === 0 && 'No session is open here.');
  }
}

function row({ session_id: id, env_id, group_id, step, seed, expires_at }: Session): HTMLTableRowElement {
  const minutes = (Date.parse(expires_at) - Date.now()) / MS_PER_MINUTE;
  const left = minutes < 1 ? 'less than a minute' : `${Math.round(minutes)} min`;
  return h(
    'tr',
    {},
    h(
      'td',
      {},
      h(
        'a',
        { id: `session-${id}`, href: formatAddress({ view: 'watch', sessionId: id }) },
        h('code', {}, id),
      ),
    ),
    h('td', {}, env_id),
    h('td', { class: 'cut' }, group_id ?? '–'),
    h('td', { class: 'number' }, step),
    h('td', { class: 'number' }, seed ?? '–'),
    h('td', { class: 'number' }, left),
  );
}
