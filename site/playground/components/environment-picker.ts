import { fill, h, newId } from '../../components/element.ts';
import { PressHold } from '../../components/press-hold.ts';
import { formatAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import type { EnvironmentSummary, Schemas } from '../client/wire.ts';
import { ProblemNote } from './problem-note.ts';

const PAUSE_MS = 150;
const WIDE = matchMedia('(min-width: 62rem)');

/** The list of environments with a search; on a narrow page it folds away. */
export class EnvironmentPicker {
  readonly #client: Client;
  readonly #note = new ProblemNote();
  readonly #search: HTMLInputElement;
  readonly #tags: HTMLSelectElement;
  readonly #list = h('ul', { class: 'environments' });
  readonly #hold = new PressHold(this.#list);
  readonly #count = h('p', { class: 'fine', role: 'status' });
  readonly #summary = h('summary', {}, 'Environments');
  readonly element: HTMLDetailsElement;
  #current: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #turn = 0;
  /** Content of the list, to skip redrawing it unchanged. */
  #shown = '';

  constructor(client: Client) {
    this.#client = client;
    const searchId = newId();
    const tagId = newId();
    this.#search = h('input', {
      id: searchId,
      type: 'search',
      autocomplete: 'off',
      placeholder: 'title or rules',
      oninput: () => this.#soon(),
    });
    this.#tags = h('select', { id: tagId, onchange: () => this.load() }, h('option', { value: '' }, 'all'));
    this.element = h(
      'details',
      { class: 'picker', open: WIDE.matches },
      this.#summary,
      h(
        'form',
        {
          class: 'stack tight',
          role: 'search',
          'aria-label': 'Environments',
          onsubmit: (event: SubmitEvent) => this.#first(event),
        },
        h('span', { class: 'pair' }, h('label', { for: searchId }, 'Search'), this.#search),
        h('span', { class: 'pair' }, h('label', { for: tagId }, 'Tag'), this.#tags),
      ),
      this.#count,
      this.#note.element,
      h('nav', { 'aria-label': 'Environments' }, this.#list),
    );
    WIDE.addEventListener('change', () => {
      this.element.open = WIDE.matches;
    });
  }

  /** Marks the one that is played, and folds the list away where there is little room. */
  set current(envId: string | undefined) {
    this.#current = envId;
    for (const link of Array.from(this.#list.querySelectorAll('a'))) {
      const isCurrent = link.dataset.env === envId;
      if (isCurrent) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
      if (isCurrent) this.#reveal(link);
    }
    this.#summary.textContent = envId ?? 'Environments';
    if (!WIDE.matches) this.element.open = false;
  }

  /** Scrolls the list, and never the page, to a link. */
  #reveal(link: HTMLElement): void {
    const list = this.element.getBoundingClientRect();
    const place = link.getBoundingClientRect();
    if (place.bottom > list.bottom) this.element.scrollTop += place.bottom - list.bottom;
    else if (place.top < list.top) this.element.scrollTop += place.top - list.top;
  }

  /** Asks the server for the list; what it gave, or undefined when it failed or somebody asked again meanwhile. */
  async load(): Promise<readonly EnvironmentSummary[] | undefined> {
    const turn = ++this.#turn;
    const query = new URLSearchParams();
    const words = this.#search.value.trim();
    if (words !== '') query.set('search', words);
    if (this.#tags.value !== '') query.set('tag', this.#tags.value);
    let environments: EnvironmentSummary[] = [];
    const done = await this.#note.around(async () => {
      const path = `v1/envs${query.size > 0 ? `?${query}` : ''}`;
      ({ environments } = await this.#client.json<Schemas['EnvironmentList']>('GET', path, { quiet: true }));
    });
    if (turn !== this.#turn || !done) return undefined;
    this.#hold.change(() => this.#show(environments, query.size === 0));
    return environments;
  }

  #soon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), PAUSE_MS);
  }

  /** Enter goes to the first that was found. */
  async #first(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    clearTimeout(this.#timer);
    const [first] = (await this.load()) ?? [];
    if (!first) return;
    this.#search.blur();
    location.hash = formatAddress({ view: 'play', envId: first.env_id });
  }

  #offerTags(environments: readonly EnvironmentSummary[]): void {
    const tags = [...new Set(environments.flatMap(({ tags }) => tags))].sort();
    fill(this.#tags, h('option', { value: '' }, 'all'), ...tags.map(tag => h('option', { value: tag }, tag)));
  }

  /** @param all whether these are all that there are */
  #show(environments: readonly EnvironmentSummary[], all: boolean): void {
    const shown = JSON.stringify([environments.map(({ env_id, title, tags }) => [env_id, title, tags]), all]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    if (all) this.#offerTags(environments);
    fill(
      this.#list,
      ...environments.map(({ env_id: envId, title }) =>
        h(
          'li',
          {},
          h(
            'a',
            { href: formatAddress({ view: 'play', envId }), 'data-env': envId },
            h('span', { class: 'title' }, title),
            h('span', { class: 'label code' }, envId),
          ),
        ),
      ),
    );
    fill(
      this.#count,
      environments.length === 0
        ? 'None found.'
        : `${environments.length} environment${environments.length > 1 ? 's' : ''}`,
    );
    const { open } = this.element;
    this.current = this.#current;
    this.element.open = open;
  }
}
