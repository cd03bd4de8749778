import { isObject, type Json, type JsonObject, jsonOf } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { remembered } from '../../../shared/remembered.ts';
import { Bm25Index } from '../core/datasets/bm25.ts';
import { jsonParts, NotJson } from '../core/datasets/json-stream.ts';
import { findFile, InvalidField, readRecords, textField } from '../core/datasets/records.ts';
import type { PagePart } from '../core/drawing/painting.ts';
import { InvalidConfig } from '../core/environment.ts';
import type { Split } from '../core/splits.ts';
import {
  type Goal,
  generateGoals,
  generateProducts,
  type Product,
  priceOf,
  priceTag,
  upperPrice,
} from './catalog.ts';

const RESULTS = 50;
/** Goals of the test and validation parts of the full public data. */
const TEST_GOALS = 500;
const VALIDATION_GOALS = 1000;
/** Largest shares of a smaller set of goals for these splits. */
const TEST_SHARE = 1 / 12;
const VALIDATION_SHARE = 1 / 6;

/** Products, their index and the customers' goals. */
export class Shop {
  readonly goals: readonly Goal[];
  readonly #products: readonly Product[];
  readonly #byAsin: ReadonlyMap<string, Product>;
  readonly #index: Bm25Index;

  constructor(products: readonly Product[], goals: readonly Goal[]) {
    this.goals = goals;
    this.#products = products;
    this.#byAsin = new Map(products.map(product => [product.asin, product]));
    this.#index = new Bm25Index(products.map(indexText));
  }

  find(asin: string): Product | undefined {
    return this.#byAsin.get(asin);
  }

  /** ASINs of the best 50 products. */
  search(query: string): string[] {
    return this.#index.search(query, RESULTS).map(hit => this.#products[hit.document].asin);
  }

  /** Goals of a split: the first are for tests, the next for validation, the rest for training. @throws InvalidConfig */
  goalsOf(split: Split): readonly Goal[] {
    const test = Math.min(TEST_GOALS, Math.floor(this.goals.length * TEST_SHARE));
    const validation = Math.min(VALIDATION_GOALS, Math.floor(this.goals.length * VALIDATION_SHARE));
    const bounds = {
      any: [0, this.goals.length],
      test: [0, test],
      validation: [test, test + validation],
      train: [test + validation, this.goals.length],
    } as const;
    const goals = this.goals.slice(...bounds[split]);
    if (goals.length === 0)
      throw new InvalidConfig('/split', `${this.goals.length} goals are too few for a part ${split}`);
    return goals;
  }
}

function indexText({ title, description, features, options }: Product): string {
  const values = Object.entries(options).map(([name, list]) => `${name}: ${list.join(', ')}`);
  return [title, description, features[0] ?? '', ...values].join(' ');
}

let generated: Shop | undefined;

/** The generated shop, or the one of public data files; indexed once for each set of files. */
export function openShop(files: PublicFiles | null): Shop | Promise<Shop> {
  if (files) return openPublic(files);
  if (!generated) {
    const products = generateProducts();
    generated = new Shop(products, generateGoals(products));
  }
  return generated;
}

const reading = new Map<string, Promise<Shop>>();

async function openPublic(files: PublicFiles): Promise<Shop> {
  const key = JSON.stringify([files.products, files.attributes, files.instructions]);
  return remembered(reading, key, () => {
    const shop = readPublicShop(files).then(({ products, goals }) => new Shop(products, goals));
    shop.catch(() => reading.delete(key));
    return shop;
  });
}

/** The files of the public WebShop data: `items_shuffle*.json`, `items_ins_v2*.json` and `items_human_ins.json`. */
interface PublicFiles {
  readonly products: string;
  readonly attributes?: string;
  readonly instructions?: string;
}

/** A product's price when the data has none. */
const USUAL_PRICE = 100;
/** Goals made for each product from its option values. */
const MAX_COMBINATIONS = 64;

/**
 * A record of `items_shuffle.json`; its attributes come from another file.
 * @throws InvalidField
 */
export function readProduct(record: JsonObject): Product {
  const optional = (field: string): string =>
    typeof record[field] === 'string' ? (record[field] as string) : '';
  const features = record.small_description;
  return {
    asin: textField(record, 'asin'),
    title: textField(record, 'name'),
    category: optional('category'),
    query: optional('query').toLowerCase().trim(),
    productCategory: optional('product_category'),
    description: optional('full_description'),
    features: Array.isArray(features) ? features.map(String) : features ? [String(features)] : [],
    attributes: [],
    options: readOptions(record.customization_options),
    prices: readPrices(record.pricing),
    rating: 'N.A.',
    reviews: [],
  };
}

/** `$12.99`, or `$12.99 to $20.00`. */
function readPrices(pricing: Json | undefined): number[] {
  if (typeof pricing !== 'string' || pricing.trim() === '') return [USUAL_PRICE];
  const prices = pricing
    .split('$')
    .slice(1, 3)
    .map(part => Number.parseFloat(part.replaceAll(/[^\d.]/g, '')));
  if (prices.length === 0 || prices.some(Number.isNaN)) {
    throw new InvalidField('pricing', `expected a price such as $12.99, got ${JSON.stringify(pricing)}`);
  }
  return prices;
}

function readOptions(given: Json | undefined): { [name: string]: string[] } {
  const options: { [name: string]: string[] } = {};
  if (given === undefined || given === null || given === '') return options;
  if (!isObject(given)) throw new InvalidField('customization_options', 'expected an object');
  for (const [name, contents] of Object.entries(given)) {
    if (contents === null) continue;
    if (!Array.isArray(contents)) throw new InvalidField(`customization_options.${name}`, 'expected a list');
    options[name.toLowerCase()] = contents.map((content, index) => {
      const value = isObject(content) ? content.value : undefined;
      if (typeof value !== 'string') {
        throw new InvalidField(`customization_options.${name}[${index}].value`, 'expected text');
      }
      return value.trim().replaceAll('/', ' | ').toLowerCase();
    });
  }
  return options;
}

/** The entries of a JSON file that is one object by ASIN. @throws InvalidConfig */
async function readKeyed(pointer: string, path: string): Promise<ReadonlyMap<string, Json>> {
  const { file } = await findFile(pointer, path);
  const content = new Map<string, Json>();
  const fault = (message: string) => new InvalidConfig(pointer, `data file ${path}${message}`);
  try {
    for await (const { of, text } of jsonParts(file)) {
      if (of === 'array') throw fault(' is not an object by ASIN');
      for (const [asin, entry] of Object.entries(parsedEntry(text))) content.set(asin, entry);
    }
  } catch (error) {
    if (error instanceof NotJson) throw fault(`, entry ${content.size + 1}: ${error.message}`);
    throw error;
  }
  return content;
}

/** `"ASIN": …` as an object. @throws NotJson */
const parsedEntry = (text: string): JsonObject =>
  jsonOf(`{${text}}`, () => new NotJson('the entry is not JSON')) as JsonObject;

/**
 * Products with their attributes, and the goals of people or of the attribute file.
 * @throws InvalidConfig
 */
async function readPublicShop(files: PublicFiles): Promise<{ products: Product[]; goals: Goal[] }> {
  const plain = await readRecords('/products', files.products, readProduct);
  const attributes =
    files.attributes === undefined ? undefined : await readKeyed('/attributes', files.attributes);
  const people =
    files.instructions === undefined ? undefined : await readKeyed('/instructions', files.instructions);
  const products: Product[] = [];
  const goals: Goal[] = [];
  const seen = new Set<string>();
  for (const product of plain) {
    if (seen.has(product.asin)) continue;
    seen.add(product.asin);
    const entry = attributes?.get(product.asin);
    const own = isObject(entry) ? texts(entry.attributes) : [];
    const whole = { ...product, attributes: own };
    products.push(whole);
    if (people) goals.push(...peopleGoals(whole, people.get(product.asin), files.instructions ?? ''));
    else if (isObject(entry)) goals.push(...attributeGoals(whole, entry));
  }
  if (goals.length === 0) {
    throw new InvalidConfig(people ? '/instructions' : '/attributes', 'no product has an instruction');
  }
  return { products, goals: Random.fromSeed(0).shuffle(goals) };
}

function texts(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

/**
 * People's goals for a product; an instruction without attributes is skipped.
 * @throws InvalidConfig
 */
function peopleGoals(product: Product, entry: Json | undefined, path: string): Goal[] {
  if (entry === undefined) return [];
  const fault = (field: string, wanted: string) =>
    new InvalidConfig('/instructions', `data file ${path}, ${product.asin}: ${field}expected ${wanted}`);
  if (!Array.isArray(entry)) throw fault('', 'a list of instructions');
  return entry.flatMap((wish: Json, index) => {
    if (!isObject(wish)) throw fault(`field [${index}]: `, 'an object');
    if (typeof wish.instruction !== 'string') throw fault(`field [${index}].instruction: `, 'text');
    const attributes = texts(wish.instruction_attributes);
    if (attributes.length === 0) return [];
    const options = isObject(wish.instruction_options)
      ? Object.values(wish.instruction_options).map(String)
      : texts(wish.instruction_options);
    return [makeGoal(product, wish.instruction.replace(/(?<!\.)\.+$/, ''), attributes, options, index)];
  });
}

function attributeGoals(product: Product, entry: JsonObject): Goal[] {
  const attributes = texts(entry.instruction_attributes);
  if (typeof entry.instruction !== 'string' || attributes.length === 0) return [];
  const { instruction } = entry;
  return combinations(Object.entries(product.options).sort(([a], [b]) => (a < b ? -1 : 1)))
    .slice(0, MAX_COMBINATIONS)
    .map((choice, index) => {
      const wishes = choice.map(([name, value]) => `${name}: ${value}`).join(', and ');
      const text = wishes === '' ? instruction : `${instruction} with ${wishes}`;
      return makeGoal(
        product,
        text,
        attributes,
        choice.map(([, value]) => value),
        index,
      );
    });
}

function combinations(options: readonly (readonly [string, readonly string[]])[]): [string, string][][] {
  let all: [string, string][][] = [[]];
  for (const [name, values] of options) {
    all = all.flatMap(choice => values.map((value): [string, string][] => [...choice, [name, value]]));
    if (all.length > MAX_COMBINATIONS) all = all.slice(0, MAX_COMBINATIONS);
  }
  return all;
}

/** Product and goal number determine the upper price, so that it is the same in every process. */
function makeGoal(
  product: Product,
  text: string,
  attributes: readonly string[],
  options: readonly string[],
  index: number,
): Goal {
  let seed = index;
  for (const character of product.asin) seed = (seed * 31 + character.charCodeAt(0)) % 2 ** 31;
  const price_upper = upperPrice(priceOf(product), Random.fromSeed(seed));
  const instruction = `${text}, and price lower than ${price_upper.toFixed(2)} dollars`;
  return { asin: product.asin, instruction, attributes, options, price_upper };
}

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
