import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { counted } from '../../../shared/text.ts';
import { useHeld } from '../../components/buttons.ts';
import { textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { ProblemNote } from '../../components/request.ts';
import { Store, useStore } from '../../components/store.ts';
import type { EnvironmentSummary, Schemas } from '../../player/wire.ts';
import { formatAddress } from '../address.ts';
import type { Client } from '../client/client.ts';

const PAUSE_MS = 150;
const WIDE = matchMedia('(min-width: 62rem)');

interface ListState {
  readonly search: string;
  readonly tag: string;
  readonly environments: readonly EnvironmentSummary[] | undefined;
  readonly tags: readonly string[];
  readonly problem?: unknown;
}

/** The server's list of environments for a search. */
export class EnvironmentList {
  readonly #client: Client;
  readonly store = new Store<ListState, Partial<ListState>>((state, change) => ({ ...state, ...change }), {
    search: '',
    tag: '',
    environments: undefined,
    tags: [],
  });
  #timer: ReturnType<typeof setTimeout> | undefined;
  #turn = 0;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Requests the list; returns it, or undefined when it failed or a later request replaced it. */
  async load(): Promise<readonly EnvironmentSummary[] | undefined> {
    clearTimeout(this.#timer);
    const turn = ++this.#turn;
    const { search, tag } = this.store.state;
    const query = new URLSearchParams();
    if (search.trim() !== '') query.set('search', search.trim());
    if (tag !== '') query.set('tag', tag);
    const path = `v1/envs${query.size > 0 ? `?${query}` : ''}`;
    try {
      const { environments } = await this.#client.json<Schemas['EnvironmentList']>('GET', path, {
        quiet: true,
      });
      if (turn !== this.#turn) return undefined;
      const tags = [...new Set(environments.flatMap(each => each.tags))].sort();
      this.store.dispatch({ environments, problem: undefined, ...(query.size === 0 && { tags }) });
      return environments;
    } catch (problem) {
      if (turn === this.#turn) this.store.dispatch({ problem });
      return undefined;
    }
  }

  /** Searches when the visitor pauses in typing. */
  search(search: string): void {
    this.store.dispatch({ search });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), PAUSE_MS);
  }

  choose(tag: string): void {
    this.store.dispatch({ tag });
    void this.load();
  }
}

interface PickerProps {
  readonly list: EnvironmentList;
  /** The environment that is played. */
  readonly current: string | undefined;
  /** False where the page says already why nothing is played. */
  readonly isOpen: boolean;
}

/** The list of environments with a search; on a narrow page it collapses. */
export function EnvironmentPicker({ list, current, isOpen }: PickerProps) {
  const { search, tag, environments, tags, problem } = useStore(list.store);
  const place = useRef<HTMLDetailsElement>(null);
  const links = useRef<HTMLUListElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [open, setOpen] = useState(WIDE.matches);
  const shown = useHeld(links, environments);
  useEffect(() => {
    const follow = () => setOpen(WIDE.matches);
    WIDE.addEventListener('change', follow);
    return () => WIDE.removeEventListener('change', follow);
  }, []);
  // Where there is little room, the list closes after a choice.
  useEffect(() => {
    if (!WIDE.matches) setOpen(false);
  }, [current]);
  useLayoutEffect(() => {
    const link = links.current!.querySelector('[aria-current]');
    if (link) reveal(place.current!, link);
  }, [current, shown]);
  const first = async (event: Event) => {
    event.preventDefault();
    const [found] = (await list.load()) ?? [];
    if (!found) return;
    field.current?.blur();
    location.hash = formatAddress({ view: 'play', envId: found.env_id });
  };
  const toggle = (event: Event) => setOpen((event.currentTarget as HTMLDetailsElement).open);
  return html`<details ref=${place} class="picker" open=${open} onToggle=${toggle}>
    <summary>Environments</summary>
    <form class="stack" role="search" aria-label="Environments" onSubmit=${first}>
      <input type="search" ref=${field} aria-label="Search" autocomplete="off" placeholder="Search title or rules" value=${search}
        onInput=${(event: Event) => list.search(textOf(event))} />
      <select aria-label="Tag" value=${tag} onChange=${(event: Event) => list.choose(textOf(event))}>
        <option value="">all tags</option>${tags.map(name => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
      <p class="fine" role="status">${shown && countText(shown.length)}</p>
    </form>
    <${ProblemNote} problem=${isOpen ? problem : undefined} />
    <nav aria-label="Environments"><ul ref=${links} class="environments">${shown?.map(
      ({ env_id: envId, title }) => html`<li key=${envId}>
        <a href=${formatAddress({ view: 'play', envId })} data-env=${envId} aria-current=${envId === current ? 'page' : undefined}>
          <span class="title">${title}</span><span class="fine code">${envId}</span></a>
      </li>`,
    )}</ul></nav>
  </details>`;
}

const countText = (count: number): string => (count === 0 ? 'None found.' : counted(count, 'environment'));

/** Scrolls the list, and never the page, to a link. */
function reveal(list: HTMLElement, link: Element): void {
  const frame = list.getBoundingClientRect();
  const place = link.getBoundingClientRect();
  if (place.bottom > frame.bottom) list.scrollTop += place.bottom - frame.bottom;
  else if (place.top < frame.top) list.scrollTop += place.top - frame.top;
}
