import type { PagePart } from '../core/drawing/painting.ts';
import { type Goal, type Product, priceTag } from './catalog.ts';
import type { Shop } from './shop.ts';

export const DETAILS = ['Description', 'Features', 'Reviews', 'Attributes'] as const;
type ProductDetail = (typeof DETAILS)[number];

/** Products on a page of results. */
export const PER_PAGE = 10;
const SEARCH = 'Search';
export const BACK = 'Back to Search';
export const NEXT = 'Next >';
export const PREVIOUS = '< Prev';
export const BUY = 'Buy Now';
/** Suffix of a selected option value. */
const CHOSEN = ' (chosen)';

export const PAGES = ['search', 'results', 'item', 'detail', 'bought'] as const;

/** Address of the customer's page. */
export type PageAddress = {
  readonly page: (typeof PAGES)[number];
  readonly results: readonly string[];
  /** Page of the results, from 1. */
  readonly number: number;
  readonly asin: string | null;
  readonly detail: ProductDetail | null;
  /** Option values clicked so far. */
  readonly chosen: { readonly [option: string]: string };
};

export const ENTRANCE: PageAddress = {
  page: 'search',
  results: [],
  number: 1,
  asin: null,
  detail: null,
  chosen: {},
};

/** A page: segments of text, and the items that can be clicked. */
export type ShopPage = {
  readonly segments: readonly string[];
  readonly clickables: readonly string[];
};

/** The page at a location, complete, so that it can be read later without the shop. */
export function showPage(shop: Shop, where: PageAddress, goal: Goal): ShopPage {
  const head = ['Instruction:', goal.instruction];
  const product = where.asin === null ? undefined : shop.find(where.asin);
  if (where.page === 'search') return { segments: ['WebShop', ...head, SEARCH], clickables: [] };
  if (where.page === 'results') return resultsPage(shop, where, head);
  if (!product) throw new Error(`the shop has no product ${where.asin}`);
  if (where.page === 'item') return itemPage(product, where, head);
  if (where.page === 'bought') {
    return {
      segments: ['Thank you for shopping with us!', product.title, priceTag(product)],
      clickables: [],
    };
  }
  const text = detailText(product, where.detail ?? 'Description');
  return { segments: [...head, BACK, PREVIOUS, ...text], clickables: [BACK, PREVIOUS] };
}

const TURNS: readonly string[] = [BACK, NEXT, PREVIOUS];

/**
 * The page as a picture: items that can be clicked as buttons, a selected option's pressed; the first product set apart
 * from the navigation before it.
 */
export function paintedParts({ segments, clickables }: ShopPage): PagePart[] {
  return segments.map((text, place) => {
    const chosen = text.endsWith(CHOSEN) ? text.slice(0, -CHOSEN.length) : undefined;
    if (chosen !== undefined && clickables.includes(chosen)) return { text: chosen, look: 'pressed' };
    if (text === SEARCH || clickables.includes(text)) {
      return { text, look: 'button', apart: TURNS.includes(segments[place - 1]) && !TURNS.includes(text) };
    }
    return { text, look: place === 0 ? 'heading' : 'text' };
  });
}

function resultsPage(shop: Shop, { results, number }: PageAddress, head: readonly string[]): ShopPage {
  const shown = results.slice((number - 1) * PER_PAGE, number * PER_PAGE);
  const turns = [...(number > 1 ? [PREVIOUS] : []), ...(number * PER_PAGE < results.length ? [NEXT] : [])];
  const products = shown.flatMap(asin => {
    const product = shop.find(asin);
    return product ? [asin, product.title, priceTag(product)] : [];
  });
  return {
    segments: [...head, BACK, `Page ${number} (Total results: ${results.length})`, ...turns, ...products],
    clickables: [BACK, ...turns, ...shown],
  };
}

function itemPage(product: Product, { chosen }: PageAddress, head: readonly string[]): ShopPage {
  const options = Object.entries(product.options);
  const lines = options.flatMap(([name, values]) => [
    name,
    ...values.map(value => (chosen[name] === value ? `${value}${CHOSEN}` : value)),
  ]);
  const details = DETAILS.filter(detail => detail !== 'Attributes' || product.attributes.length > 0);
  return {
    segments: [
      ...head,
      BACK,
      PREVIOUS,
      ...lines,
      product.title,
      `Price: ${priceTag(product)}`,
      `Rating: ${product.rating}`,
      ...details,
      BUY,
    ],
    clickables: [BACK, PREVIOUS, ...new Set(options.flatMap(([, values]) => values)), ...details, BUY],
  };
}

function detailText(product: Product, detail: ProductDetail): readonly string[] {
  const texts = {
    Description: product.description === '' ? [] : [product.description],
    Features: product.features,
    Reviews: product.reviews,
    Attributes: product.attributes,
  }[detail];
  return texts.length > 0 ? texts : ['None'];
}
