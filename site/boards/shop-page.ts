import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { isObject, type Json } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import { type BoardKind, has } from './board-kind.ts';

interface ShopState {
  readonly instruction: string;
  readonly where: {
    readonly page: 'search' | 'results' | 'item' | 'detail' | 'bought';
    readonly asin: string | null;
    readonly detail: string | null;
  };
  /** The page's text. */
  readonly segments: readonly string[];
  /** Possible actions, `search[words]` for any search. */
  readonly actions: readonly string[];
}

/** A page, and its clickable parts. */
interface ShopPage extends ShopState {
  readonly clickables: readonly string[];
}

type Act = ((action: Json) => void) | undefined;

const CHOSEN = ' (chosen)';
const TURNS = ['Back to Search', '< Prev', 'Next >'];
const DETAILS = ['Description', 'Features', 'Reviews', 'Attributes'];
const BUY = 'Buy Now';
const HEAD = 2;
const BEST_RATING = 5;

/** A shop with a search box, results, a product with its options, and a button that buys it. */
export const shopPage: BoardKind<ShopState> = {
  name: 'shop-page',
  fits: state => has(state, 'instruction', 'where', 'segments', 'actions') && isObject(state.where),

  draw(state, { act }) {
    const { page } = state.where;
    const clickables = state.actions.flatMap(action => /^click\[(.*)\]$/s.exec(action)?.[1] ?? []);
    const shown = { ...state, clickables };
    return html`<div class="board-panel shop-page" data-page=${page}>
      <div class="row shop-bar">
        <strong>WebShop</strong>
        ${act && page === 'search' && html`<${SearchBox} act=${act} />`}
      </div>
      <p><span class="fine">Wanted</span> ${state.instruction}</p>
      ${turns(shown, act)}
      ${page === 'results' && results(shown, act)}
      ${page === 'item' && item(shown, act)}
      ${page === 'detail' && detail(shown)}
      ${page === 'bought' && receipt(shown)}
    </div>`;
  },
};

const click = (act: Act, text: string) => act && (() => act(`click[${text}]`));

/** A button where actions are possible, otherwise its words. */
function clickable(
  text: string,
  act: Act,
  { name = 'small', label = text }: { name?: string; label?: string } = {},
): VNode {
  return act
    ? html`<button type="button" class=${name} onClick=${click(act, text)}>${label}</button>`
    : html`<span class=${`button ${name}`}>${label}</span>`;
}

function SearchBox({ act }: { readonly act: (action: Json) => void }): VNode {
  const [words, write] = useState('');
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    if (words.trim() !== '') act(`search[${words.trim()}]`);
  };
  return html`<form class="pair grow" role="search" onSubmit=${send}>
    <input
      type="search" class="grow" data-board-focus aria-label="Search the shop" placeholder="What are you looking for?"
      value=${words} onInput=${(event: InputEvent) => write((event.target as HTMLInputElement).value)}
      autocomplete="off"
    />
    <button type="submit">Search</button>
  </form>`;
}

function turns({ segments, clickables }: ShopPage, act: Act): VNode | false {
  const offered = TURNS.filter(turn => clickables.includes(turn));
  const count = segments.find(segment => /^Page \d+ \(/.test(segment));
  if (offered.length === 0) return false;
  return html`<div class="row">
    ${offered.map(turn => clickable(turn, act, { name: 'link' }))}
    ${count && html`<span class="fine">${count}</span>`}
  </div>`;
}

function results({ segments, clickables }: ShopPage, act: Act): VNode {
  const first = segments.findIndex(
    (segment, index) => index >= HEAD && clickables.includes(segment) && !TURNS.includes(segment),
  );
  const products = first < 0 ? [] : segments.slice(first);
  const rows = Array.from({ length: Math.floor(products.length / 3) }, (_, row) =>
    products.slice(3 * row, 3 * row + 3),
  );
  if (rows.length === 0) return html`<p>Nothing was found.</p>`;
  return html`<ul class="shop-results">
    ${rows.map(
      ([asin, title, price]) => html`<li key=${asin}>
        ${thumbnail(asin)}
        ${clickable(asin, act, { name: 'link product', label: title })}
        <b class="number">${price}</b>
        <span class="fine">${asin}</span>
      </li>`,
    )}
  </ul>`;
}

/** A placeholder picture for a product: the catalog has none, so the product's id chooses a color. */
function thumbnail(asin: string): VNode {
  let hue = 0;
  for (const character of asin) hue = (hue * 31 + character.charCodeAt(0)) % 360;
  return html`<svg class="shop-picture" viewBox="0 0 40 40" aria-hidden="true">
    <rect width="40" height="40" rx="6" style=${{ fill: `hsl(${hue} 45% 62%)` }} />
    <path fill="none" stroke="#ffffffd9" stroke-width="2" d="M10 15h20l2 17H8zM15 18v-5a5 5 0 0 1 10 0v5" />
  </svg>`;
}

function item({ where, segments, clickables }: ShopPage, act: Act): VNode {
  const price = segments.findIndex(segment => segment.startsWith('Price: '));
  const title = segments[price - 1];
  const plain = (segment: string) => (segment.endsWith(CHOSEN) ? segment.slice(0, -CHOSEN.length) : segment);
  const options: { name: string; values: string[] }[] = [];
  for (const segment of segments.slice(HEAD, price - 1)) {
    if (TURNS.includes(segment)) continue;
    if (clickables.includes(plain(segment))) options.at(-1)?.values.push(segment);
    else options.push({ name: segment, values: [] });
  }
  const rating = segments.find(segment => segment.startsWith('Rating: '))?.slice('Rating: '.length) ?? '';
  return html`<div class="stack shop-item">
    ${thumbnail(where.asin ?? '')}
    <div class="stack">
      <h2>${title}</h2>
      <p><b class="number">${segments[price].slice('Price: '.length)}</b> ${stars(rating)}</p>
      ${options.map(
        ({ name, values }) => html`<div key=${name} class="row shop-option" role="group" aria-label=${name}>
          <span class="fine">${name}</span>
          ${values.map(value => {
            const isChosen = value !== plain(value);
            return act
              ? html`<button key=${plain(value)} type="button" class="small" aria-pressed=${String(isChosen)} onClick=${click(act, plain(value))}>${plain(value)}</button>`
              : html`<span class="button small ${isChosen ? 'here' : ''}">${plain(value)}</span>`;
          })}
        </div>`,
      )}
      <p class="row">
        ${DETAILS.filter(name => clickables.includes(name)).map(name => clickable(name, act, { name: 'link' }))}
      </p>
      ${clickables.includes(BUY) && html`<p>${clickable(BUY, act, { name: 'primary' })}</p>`}
    </div>
  </div>`;
}

function stars(rating: string): VNode | false {
  const value = Number.parseFloat(rating);
  if (Number.isNaN(value)) return html`<span class="fine">Rating: ${rating}</span>`;
  const full = Math.round(value);
  return html`<span class="shop-stars" role="img" aria-label="Rating: ${rating}">${'★'.repeat(full)}${'☆'.repeat(Math.max(0, BEST_RATING - full))}</span>`;
}

function detail({ where, segments, clickables }: ShopPage): VNode {
  const texts = segments.slice(HEAD).filter(segment => !clickables.includes(segment));
  return html`<div class="shop-detail"><h2>${where.detail}</h2>${texts.map(text => html`<p>${text}</p>`)}</div>`;
}

function receipt({ segments, where }: ShopPage): VNode {
  const [thanks, title, price] = segments;
  return html`<div class="stack shop-item">
    ${thumbnail(where.asin ?? '')}<p><strong>${thanks}</strong></p><p>${title} ${price}</p>
  </div>`;
}
