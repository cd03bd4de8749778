import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from 'preact/hooks';
import { Board } from '../../boards/board.ts';
import { useHeld } from '../../components/buttons.ts';
import { endText, type Meanings } from '../../components/ends.ts';
import { textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { ProblemNote, RequestFailed } from '../../components/request.ts';
import { useUniqueId } from '../../components/store.ts';
import { formatNumber, formatValue, type NamedActions, namedAction } from '../../player/format.ts';
import type { Environment, EnvironmentSummary, Schemas, SessionCard } from '../../player/wire.ts';
import { type Address, formatAddress, type WatchAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import { type FeedFilter, SessionFeed } from '../client/session-feed.ts';

const PAUSE_MS = 250;
/** Open sessions of a page, as the server's default is. */
const PAGE_SIZE = 60;
/** Widths of cards by the names of sizes. */
const CARD_WIDTHS: ReadonlyMap<string, string> = new Map([
  ['small', '9rem'],
  ['', '13rem'],
  ['large', '24rem'],
]);
/** The server counts no further. */
const MAX_COUNTED = 10_000;

/** Names of actions and ends, requested once for each environment in which somebody sends numbers or an episode ends. */
class EnvironmentNames {
  readonly #client: Client;
  readonly #onload: () => void;
  readonly #environments = new Map<string, (NamedActions & Pick<Environment, 'ends'>) | undefined>();

  /** @param onload names have arrived, and cards can be rendered again */
  constructor(client: Client, onload: () => void) {
    this.#client = client;
    this.#onload = onload;
  }

  /** Names of an environment; undefined while they load. */
  of(envId: string) {
    if (!this.#environments.has(envId)) void this.#load(envId);
    return this.#environments.get(envId);
  }

  async #load(envId: string): Promise<void> {
    this.#environments.set(envId, undefined);
    try {
      this.#environments.set(
        envId,
        await this.#client.run<Environment>('get_environment', { env_id: envId }),
      );
      this.#onload();
    } catch {
      // The number stays: the environment may have been removed since.
    }
  }
}

type Filter = Required<Omit<WatchAddress, 'view' | 'sessionId'>>;

const filterOf = ({ env = '', group = '', client = '', size = '', page = 1 }: WatchAddress): Filter => ({
  env,
  group,
  client,
  size,
  page,
});

const feedFilter = ({ env, group, client, page }: Filter): FeedFilter => ({
  env_id: env,
  group_id: group.trim(),
  client: client.trim(),
  offset: (page - 1) * PAGE_SIZE,
});

interface SessionWallProps {
  readonly client: Client;
  readonly address: WatchAddress;
  /** Called when the filters or the page have changed. */
  readonly onaddress: (address: Address) => void;
}

/** Live boards of all visible sessions, newest first, ended ones below. */
export function SessionWall({ client, address, onaddress }: SessionWallProps) {
  const id = useUniqueId();
  const place = useRef<HTMLDivElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const [filter, setFilter] = useState(() => filterOf(address));
  const [environments, setEnvironments] = useState<readonly EnvironmentSummary[]>([]);
  const [problem, setProblem] = useState<unknown>(undefined);
  const [sessions, setSessions] = useState<{ cards: readonly SessionCard[]; open: number } | undefined>(
    undefined,
  );
  const [version, redraw] = useReducer((count: number) => count + 1, 0);
  const names = useMemo(() => new EnvironmentNames(client, () => redraw(undefined)), []);
  const feed = useMemo(() => {
    const take = (cards: readonly SessionCard[], open: number) => {
      setProblem(undefined);
      setSessions({ cards, open });
    };
    return new SessionFeed(client, take, setProblem);
  }, []);
  useLayoutEffect(() => {
    const start = filterOf(address);
    setFilter(start);
    setProblem(undefined);
    feed.start(feedFilter(start));
    return () => {
      clearTimeout(timer.current);
      feed.stop();
    };
  }, [address]);
  useEffect(() => {
    client.json<Schemas['EnvironmentList']>('GET', 'v1/envs', { quiet: true }).then(
      list => setEnvironments(list.environments),
      // A refused WebSocket does not say why, and what another token showed is no longer shown.
      (refusal: unknown) => {
        if (refusal instanceof RequestFailed) setSessions(undefined);
        setProblem(refusal);
      },
    );
  }, [address]);
  const shown = useHeld(
    place,
    useMemo(() => ({ sessions, filter }), [sessions, version]),
  );
  const refine = (next: Filter) => {
    clearTimeout(timer.current);
    onaddress({ view: 'watch', ...next, group: next.group.trim(), client: next.client.trim() });
    feed.filter = feedFilter(next);
  };
  const change = (values: Partial<Filter>, pauseMs = 0) => {
    const next = { ...filter, page: 1, ...values };
    setFilter(next);
    clearTimeout(timer.current);
    if (pauseMs === 0) refine(next);
    else timer.current = setTimeout(() => refine(next), pauseMs);
  };
  const search = (
    label: string,
    name: 'group' | 'client',
  ) => html`<span class="pair"><label for="${id}-${name}">${label}</label>
    <input id="${id}-${name}" type="search" autocomplete="off" value=${filter[name]}
      onInput=${(event: Event) => change({ [name]: textOf(event) }, PAUSE_MS)} /></span>`;
  const isListed = filter.env === '' || environments.some(({ env_id }) => env_id === filter.env);
  return html`<section class="stack wall" aria-labelledby="wall-title">
    <h1 id="wall-title" tabindex="-1">Sessions</h1>
    <form class="row" role="search" aria-label="Sessions" onSubmit=${(event: Event) => event.preventDefault()}>
      <span class="pair"><label for="${id}-env">Environment</label>
        <select id="${id}-env" style="max-width: 17rem" value=${filter.env} onChange=${(event: Event) => change({ env: textOf(event) })}>
          <option value="">all</option>
          ${!isListed && html`<option key=${filter.env} value=${filter.env}>${filter.env}</option>`}
          ${environments.map(({ env_id, title: name }) => html`<option key=${env_id} value=${env_id}>${name}</option>`)}
        </select></span>
      ${search('Group', 'group')}${search('Client', 'client')}
      <span class="pair"><label for="${id}-size">Cards</label>
        <select id="${id}-size" value=${filter.size} onChange=${(event: Event) => change({ size: textOf(event), page: filter.page })}>
          ${Array.from(CARD_WIDTHS.keys(), size => html`<option key=${size} value=${size}>${size || 'medium'}</option>`)}
        </select></span>
      <p class="fine" role="status">${sessions ? countText(sessions) : problem === undefined && 'Asking the server …'}</p>
    </form>
    <${ProblemNote} problem=${problem} />
    <div ref=${place} class="stack">${shown.sessions && cardsOf(shown.sessions)}</div>
  </section>`;

  function cardsOf({ cards, open }: NonNullable<typeof sessions>) {
    if (cards.length === 0)
      return html`<p class="hint empty">
        No session is open here. They appear as soon as somebody plays or trains, and stay for a minute after their
        end. <a href=${formatAddress({ view: 'play' })}>Play one yourself</a>.
      </p>`;
    const turn = (page: number) => change({ page });
    const width = CARD_WIDTHS.get(filter.size) ?? CARD_WIDTHS.get('');
    return html`<${Pages} page=${filter.page} shown=${cards.filter(isOpen).length} open=${open} turn=${turn} />
      <ul class="tiles cards" style=${`--tile: ${width}; --picture: ${width}`}>${cards.map(card => {
        const { env_id: envId, action, ended_by: end } = card;
        const known = typeof action === 'number' || end !== undefined ? names.of(envId) : undefined;
        return html`<li key=${card.session_id}><${Card} card=${card} action=${known ? namedAction(known, action) : action} ends=${known?.ends} /></li>`;
      })}</ul>`;
  }
}

const isOpen = ({ ended }: SessionCard): boolean => ended === null;

function countText({
  cards,
  open,
}: {
  readonly cards: readonly SessionCard[];
  readonly open: number;
}): string {
  const count = open < MAX_COUNTED ? String(open) : `${MAX_COUNTED} or more`;
  return `${count} open, ${cards.length - cards.filter(isOpen).length} ended in the last minute`;
}

interface PagesProps {
  readonly page: number;
  /** Open sessions on the page, and in total. */
  readonly shown: number;
  readonly open: number;
  readonly turn: (page: number) => void;
}

/** Links to newer and older sessions, where they do not fit one page. */
function Pages({ page, shown, open, turn }: PagesProps) {
  if (open <= PAGE_SIZE && page === 1) return null;
  const first = (page - 1) * PAGE_SIZE;
  return html`<nav class="row" aria-label="Pages of sessions">
    <button type="button" disabled=${page === 1} onClick=${() => turn(page - 1)}>Newer</button>
    <span>${shown === 0 ? 'none' : `${first + 1} to ${first + shown}`} of ${open}</span>
    <button type="button" disabled=${first + shown >= open} onClick=${() => turn(page + 1)}>Older</button>
  </nav>`;
}

interface CardProps {
  readonly card: SessionCard;
  /** The last action, by its name. */
  readonly action: unknown;
  /** Meanings of the environment's ends. */
  readonly ends?: Meanings;
}

function Card({ card, action, ends }: CardProps) {
  const { session_id: id, env_id: envId, step, group_id: group } = card;
  const status = statusOf(card, ends);
  return html`<article class="card">
    <div class="picture" aria-hidden="true" inert>
      <${Board} key=${card.episode_id} state=${card.structured} text=${card.text} />
    </div>
    <h2><a class="whole" href=${formatAddress({ view: 'watch', sessionId: id })}>${envId}</a></h2>
    <p><span class=${`chip cut ${status.tone}`} style="max-width: 100%" title=${status.text}>${status.text}</span></p>
    <dl class="row">
      <div class="pair"><dt class="fine">Turn</dt><dd>${step} of ${card.max_episode_steps}</dd></div>
      <div class="pair"><dt class="fine">Return</dt><dd>${formatNumber(card.return)}</dd></div>
    </dl>
    <p class="fine code cut card-action" title=${action === undefined ? '' : formatValue(action)}>
      ${action === undefined ? 'no action yet' : formatValue(action)}
    </p>
    ${group && html`<p class="fine code cut">group ${group}</p>`}
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
