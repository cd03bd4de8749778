import type { ReferencePolicy } from '../core/environment.ts';
import { BACK, BUY, NEXT, PER_PAGE, PREVIOUS } from './pages.ts';
import { openShop } from './shop.ts';
import type { WebShopState } from './state.ts';

export const oracle: ReferencePolicy<WebShopState> = {
  title: 'Searches for the title of the fitting product, chooses the wanted options and buys it',
  async plan({ where, goal, files, verdict }, count) {
    const product = (await openShop(files)).find(goal.asin);
    if (verdict || !product) return [];
    const values = wantedValues(product.options, goal.options);
    const missing = values.filter(value => !Object.values(where.chosen).includes(value));
    const buying = (wanted: readonly string[]) => clicks([...wanted, BUY]);
    if (where.page === 'item' && where.asin === goal.asin) return buying(missing).slice(0, count);
    const found = where.results.indexOf(goal.asin);
    if (where.page === 'results' && found >= 0) {
      const turns = Math.floor(found / PER_PAGE) + 1 - where.number;
      const paging = new Array<string>(Math.abs(turns)).fill(turns > 0 ? NEXT : PREVIOUS);
      return [...clicks([...paging, goal.asin]), ...buying(values)].slice(0, count);
    }
    const search = `search[${product.title}]`;
    return (where.page === 'search' ? [search] : [...clicks([BACK]), search]).slice(0, count);
  },
};

/** The values of the product's options that the goal asks for, one an option at most. */
function wantedValues(
  options: { readonly [name: string]: readonly string[] },
  wanted: readonly string[],
): string[] {
  return Object.values(options).flatMap(values => {
    const value = values.find(candidate => wanted.some(wish => wish.toLowerCase() === candidate));
    return value === undefined ? [] : [value];
  });
}

function clicks(names: readonly string[]): string[] {
  return names.map(name => `click[${name}]`);
}

export const random: ReferencePolicy<WebShopState> = {
  title: 'Searches for random words of the instruction, then clicks at random',
  plan({ where, page, goal, verdict }, _count, rng) {
    if (verdict) return [];
    if (where.page !== 'search') return [`click[${rng.choice(page.clickables)}]`];
    const words = goal.instruction.match(/[\p{L}\p{N}]+/gu) ?? ['shop'];
    return [`search[${rng.shuffle(words).slice(0, 3).join(' ')}]`];
  },
};
