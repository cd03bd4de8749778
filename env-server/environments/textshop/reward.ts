import { type Goal, type Product, priceOf } from './catalog.ts';

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
