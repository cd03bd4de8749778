import { readFileSync } from 'node:fs';
import { Random } from '../../../shared/random.ts';

/** A product as the shop shows it. */
export interface Product {
  readonly asin: string;
  readonly title: string;
  readonly category: string;
  /** The search term that the product was collected under. */
  readonly query: string;
  /** `Clothing › Shoes › Athletic`. */
  readonly productCategory: string;
  readonly description: string;
  readonly features: readonly string[];
  readonly attributes: readonly string[];
  /** Values of each option, both in lower case. */
  readonly options: { readonly [name: string]: readonly string[] };
  /** One price, or both ends of a range. */
  readonly prices: readonly number[];
  readonly rating: string;
  readonly reviews: readonly string[];
}

/** Goal of a customer. */
export type Goal = {
  readonly asin: string;
  readonly instruction: string;
  readonly attributes: readonly string[];
  readonly options: readonly string[];
  /** Upper price limit. */
  readonly price_upper: number;
};

/** Price to pay: the middle of a range. */
export function priceOf({ prices }: Product): number {
  return prices.reduce((sum, price) => sum + price, 0) / prices.length;
}

export function priceTag({ prices }: Product): string {
  return prices.map(price => `$${price.toFixed(2)}`).join(' to ');
}

/** The shop that ships with TextShop: products made by rule from a fixed seed, and customers' goals. */

const SEED = 19_990_401;
const PRODUCTS = 1008;
const GOALS_PER_PRODUCT = 2;
/** Upper prices of goals, in dollars. */
const PRICE_STEP = 10;
const PRICE_STEPS = 4;

/** Kind of product that the generated catalog sells. */
interface ProductKind {
  readonly noun: string;
  readonly category: string;
  readonly path: string;
  readonly prices: readonly [least: number, most: number];
  readonly sizes: readonly string[];
  readonly attributes: readonly string[];
}

/** Kinds of products, and words for their titles and options. Their order matters: another order makes another shop. */
const CATALOG: Readonly<
  Record<'brands' | 'adjectives' | 'audiences' | 'colors' | 'flavors', readonly string[]>
> & { readonly kinds: readonly ProductKind[] } = JSON.parse(
  readFileSync(new URL('./catalog.json', import.meta.url), 'utf8'),
);

export function generateProducts(): Product[] {
  const rng = Random.fromSeed(SEED);
  return Array.from({ length: PRODUCTS }, (_, index) =>
    makeProduct(CATALOG.kinds[index % CATALOG.kinds.length], index, rng),
  );
}

function some<T>(rng: Random, items: readonly T[], least: number, most: number): T[] {
  return rng.shuffle(items).slice(0, least + rng.integer(most - least + 1));
}

function makeProduct(kind: ProductKind, index: number, rng: Random): Product {
  const attributes = some(rng, kind.attributes, 2, 4);
  const brand = rng.choice(CATALOG.brands);
  const audience = rng.choice(CATALOG.audiences);
  const adjective = rng.choice(CATALOG.adjectives);
  const food = kind.category === 'grocery';
  const options: { [name: string]: readonly string[] } = {};
  if (food) options['flavor name'] = some(rng, CATALOG.flavors, 2, 5);
  else if (kind.category !== 'beauty' || rng.chance(0.3)) options.color = some(rng, CATALOG.colors, 2, 6);
  if (kind.sizes.length > 0) {
    const from = rng.integer(kind.sizes.length - 1);
    options.size = kind.sizes.slice(from, from + 2 + rng.integer(kind.sizes.length - from));
  }
  const [low, high] = kind.prices;
  const price = Math.round((low + rng.float() * (high - low)) * 100) / 100;
  const prices = rng.chance(0.15) ? [price, Math.round(price * 125) / 100] : [price];
  const stars = 30 + rng.integer(20);
  return {
    asin: asinOf(index),
    title: `${brand} ${adjective} ${kind.noun} for ${audience}, ${attributes[0]}`,
    category: kind.category,
    query: kind.noun,
    productCategory: kind.path,
    description: `The ${kind.noun} by ${brand} suits ${audience}. It is ${adjective} and ${attributes.join(', ')}.`,
    features: [
      ...attributes.map(attribute => `${attribute[0].toUpperCase()}${attribute.slice(1)}`),
      `${brand} quality`,
      `Made for ${audience}`,
    ],
    attributes,
    options,
    prices,
    rating: (stars / 10).toFixed(1),
    reviews: some(rng, REVIEWS, 1, 3),
  };
}

const REVIEWS = [
  'Does what it says and arrived on time.',
  'Good value, I would buy it again.',
  'Looks just like the picture.',
  'Not quite what I expected, but fine for the price.',
  'My second one, still happy with it.',
];

/** A ten-character id like the public data's, from the product's number. */
function asinOf(index: number): string {
  return `B0${(index * 7_919 + 104_729).toString(36).toUpperCase().padStart(8, '0')}`;
}

/** Customers' goals for the generated products, in a mixed order. */
export function generateGoals(products: readonly Product[]): Goal[] {
  const rng = Random.fromSeed(SEED + 1);
  const goals = products.flatMap(product =>
    Array.from({ length: GOALS_PER_PRODUCT }, () => makeGoal(product, rng)),
  );
  return rng.shuffle(goals);
}

function makeGoal(product: Product, rng: Random): Goal {
  const attributes = some(rng, product.attributes, 1, 2);
  const chosen = Object.entries(product.options).map(([name, values]) => [name, rng.choice(values)] as const);
  const price_upper = upperPrice(priceOf(product), rng);
  const request = rng.choice(REQUESTS);
  const wishes = chosen.map(([name, value]) => `${name} ${value}`).join(' and ');
  return {
    asin: product.asin,
    instruction: `${request} ${product.query} that should be ${attributes.join(' and ')}${wishes ? `, with ${wishes}` : ''}, and cost at most ${price_upper.toFixed(2)} dollars`,
    attributes,
    options: chosen.map(([, value]) => value),
    price_upper,
  };
}

const REQUESTS = ['Find me', 'I need', 'I am looking for', 'Please buy', 'I would like'];

/** One of the next few round prices above, never the nearest. */
export function upperPrice(price: number, rng: Random): number {
  const next = (Math.floor(price / PRICE_STEP) + 1) * PRICE_STEP;
  return next + PRICE_STEP * (1 + rng.integer(PRICE_STEPS - 1));
}
