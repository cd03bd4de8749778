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

/**
 * The reward of WebShop (Yao et al. 2022, `engine/goal.py`). WebShop takes the nouns of a title by a part-of-speech
 * tagger; here all words except stop words and numbers are taken.
 */
export type Verdict = {
  /** r_type · (attribute hits + option hits + price hit) / (attributes + options + 1). */
  readonly reward: number;
  readonly r_type: number;
  readonly attribute_hits: number;
  readonly option_hits: number;
  readonly price_hit: boolean;
  readonly title_score: number;
};

const ALIKE = 85;
const SHARED_CATEGORIES = 2;
const TITLE_MATCH = 0.2;
const TITLE_WEAK = 0.1;
const TYPE_MISMATCH = 0.5;
const TYPE_WEAK = 0.1;
/** Options that need equal values, not only similar ones. */
const EXACT_OPTIONS = new Set(['size']);
const COLORS =
  'black blue brown gold gray green grey ivory khaki lavender navy orange pink purple red rose silver teal white yellow'.split(
    ' ',
  );
const STOP_WORDS = new Set('a an and by for from in of on or pack set the to with'.split(' '));

/**
 * @param wanted the product that the goal was made for; the bought one should be of its kind
 * @param chosen selected value of each option
 */
export function judge(
  bought: Product,
  chosen: { readonly [option: string]: string },
  goal: Goal,
  wanted: Product,
): Verdict {
  const title_score = titleScore(bought.title, wanted.title);
  const r_type = typeScore(bought, wanted, title_score);
  const attribute_hits = goal.attributes.filter(attribute => hasAttribute(bought, attribute)).length;
  const option_hits = Math.min(countOptionHits(bought, chosen, goal.options), goal.options.length);
  const price_hit = priceOf(bought) <= goal.price_upper;
  const parts = goal.attributes.length + goal.options.length + 1;
  const reward = (r_type * (attribute_hits + option_hits + Number(price_hit))) / parts;
  return { reward, r_type, attribute_hits, option_hits, price_hit, title_score };
}

function typeScore(bought: Product, wanted: Product, titleScore: number): number {
  if (titleScore === 0) return 0;
  if (titleScore < TITLE_WEAK) return TYPE_WEAK;
  const categories = new Set(split(wanted.productCategory));
  const shared = new Set(split(bought.productCategory).filter(name => categories.has(name))).size;
  const match = bought.query === wanted.query || shared >= SHARED_CATEGORIES || titleScore > TITLE_MATCH;
  return match ? 1 : TYPE_MISMATCH;
}

function split(category: string): string[] {
  return category.split('›').map(name => name.trim());
}

/** Share of the wanted title's words that the bought product's title has; 0.2 for a title without words. */
function titleScore(bought: string, wanted: string): number {
  const words = (title: string) =>
    new Set(
      (title.toLowerCase().match(/\p{L}+/gu) ?? []).filter(word => word.length > 1 && !STOP_WORDS.has(word)),
    );
  const desired = words(wanted);
  if (desired.size === 0) return TITLE_MATCH;
  const found = words(bought);
  return [...desired].filter(word => found.has(word)).length / desired.size;
}

function hasAttribute(product: Product, attribute: string): boolean {
  return (
    product.attributes.some(own => tokenSetRatio(own, attribute) > ALIKE) || mentions(product, attribute)
  );
}

function mentions({ title, features, description }: Product, text: string): boolean {
  return [title, features.join(' '), description].some(part => part.toLowerCase().includes(text));
}

function countOptionHits(
  bought: Product,
  chosen: { readonly [option: string]: string },
  wanted: readonly string[],
): number {
  const goals = wanted.map(plainColor);
  return Object.entries(chosen).filter(([name, value]) => {
    const own = plainColor(value);
    const hit = EXACT_OPTIONS.has(name)
      ? goals.includes(own)
      : goals.some(goal => tokenSetRatio(goal, own) > ALIKE);
    return hit || mentions(bought, own);
  }).length;
}

/** The plain color in a value, or the value itself. */
function plainColor(value: string): string {
  const text = value.toLowerCase();
  return COLORS.find(color => new RegExp(`\\b${color}\\b`).test(text)) ?? text;
}

/**
 * Similarity of two texts as sets of words, from 0 to 100, as in rapidfuzz's `token_set_ratio`, which WebShop's reward
 * uses. 100 when all words of one are among the other's.
 */
export function tokenSetRatio(a: string, b: string): number {
  const [first, second] = [words(a), words(b)];
  if (first.size === 0 || second.size === 0) return 0;
  const common = sorted([...first].filter(word => second.has(word)));
  const onlyFirst = sorted([...first].filter(word => !second.has(word)));
  const onlySecond = sorted([...second].filter(word => !first.has(word)));
  if (common !== '' && (onlyFirst === '' || onlySecond === '')) return 100;
  const join = (rest: string) => [common, rest].filter(Boolean).join(' ');
  const ratios = [ratio(join(onlyFirst), join(onlySecond))];
  if (common !== '') ratios.push(ratio(common, join(onlyFirst)), ratio(common, join(onlySecond)));
  return Math.round(Math.max(...ratios));
}

function words(text: string): Set<string> {
  return new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu));
}

function sorted(list: string[]): string {
  return list.sort().join(' ');
}

/** 100 · 2 · (longest common subsequence) / (both lengths). */
function ratio(a: string, b: string): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (let i = 0; i < a.length; i++) {
    const next = [0];
    for (let j = 0; j < b.length; j++) {
      next.push(a[i] === b[j] ? row[j] + 1 : Math.max(row[j + 1], next[j]));
    }
    row = next;
  }
  return (200 * row[b.length]) / (a.length + b.length);
}
