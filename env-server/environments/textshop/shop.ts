import { remembered } from '../../../shared/remembered.ts';
import { Bm25Index } from '../core/datasets/bm25.ts';
import { InvalidConfig } from '../core/environment.ts';
import type { Split } from '../core/splits.ts';
import { type Goal, generateGoals, generateProducts, type Product } from './catalog.ts';
import { type PublicFiles, readPublicShop } from './public-data.ts';

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
