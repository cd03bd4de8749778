import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { textTool } from '../core/actions.ts';
import { pick } from '../core/datasets/records.ts';
import { dataFile, MARKED_WORDS, words } from '../core/datasets/word-problems.ts';
import { paintPage } from '../core/drawing/painting.ts';
import {
  type ActionTool,
  type Environment,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  type ReferencePolicy,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { choiceSetting, integerSetting } from '../core/settings.ts';
import { COUNT, choice, dict, FLAG, LINES, list, type ObservationSpaces, orNull } from '../core/spaces.ts';
import { SPLIT_PRESETS, SPLITS } from '../core/splits.ts';
import { type Goal, judge, type Product, type Verdict } from './catalog.ts';
import {
  BACK,
  BUY,
  DETAILS,
  ENTRANCE,
  NEXT,
  openShop,
  PAGES,
  type PageAddress,
  PER_PAGE,
  PREVIOUS,
  paintedParts,
  type Shop,
  type ShopPage,
  showPage,
} from './shop.ts';

type TextShopState = {
  readonly files: {
    readonly products: string;
    readonly attributes?: string;
    readonly instructions?: string;
  } | null;
  readonly strict: boolean;
  readonly goal: Goal;
  readonly where: PageAddress;
  readonly page: ShopPage;
  readonly verdict: Verdict | null;
};

const oracle: ReferencePolicy<TextShopState> = {
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

/** The product's option values that the goal asks for, at most one an option. */
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

const random: ReferencePolicy<TextShopState> = {
  title: 'Searches for random words of the instruction, then clicks at random',
  plan({ where, page, goal, verdict }, _count, rng) {
    if (verdict) return [];
    if (where.page !== 'search') return [`click[${rng.choice(page.clickables)}]`];
    const words = goal.instruction.match(/[\p{L}\p{N}]+/gu) ?? ['shop'];
    return [`search[${rng.shuffle(words).slice(0, 3).join(' ')}]`];
  },
};

const MAX_STEPS = 9;
const MAX_ACTION_LENGTH = 1000;
const MAX_OBSERVATION_LENGTH = 100_000;
const SEPARATOR = ' [SEP] ';
/** Rounding of the reward's fraction. */
const EPSILON = 1e-9;

const TOOLS: readonly ActionTool[] = [
  textTool('search', 'Searches the shop from its search page.', 'search[{query}]', { query: 'A few words' }),
  textTool(
    'click',
    'Clicks on something that the page offers: a product, an option, Buy Now, Next >, < Prev, Back to Search.',
    'click[{element}]',
    { element: 'As the page writes it' },
  ),
];

const configSchema = closed({
  reward_mode: choiceSetting(
    ['strict', 'partial'],
    'strict',
    'strict pays 1 for a perfect purchase and else 0; partial pays the fraction that fits.',
  ),
  split: choiceSetting(
    SPLITS,
    'any',
    'The first 500 goals are for tests, the next 1,000 for validation, the rest for training; of a small set at most 1/12 and 1/6.',
  ),
  products: dataFile(
    'File of products in the public WebShop form (items_shuffle.json), instead of the generated shop.',
  ),
  attributes: dataFile('File of attributes and instructions by ASIN (items_ins_v2.json).'),
  instructions: dataFile("File of people's instructions by ASIN (items_human_ins.json)."),
  max_steps: integerSetting(MAX_STEPS, [1], 'Actions before truncation.'),
});

const optionsSchema = closed({
  index: Type.Optional(Type.Integer({ minimum: 0, description: 'Goal within the split, from 0.' })),
  goal: Type.Optional(
    closed(
      {
        asin: Type.String({ description: 'A product that fits.' }),
        instruction: Type.String({ minLength: 1, maxLength: 4000 }),
        attributes: Type.Array(Type.String(), { minItems: 1 }),
        options: Type.Array(Type.String()),
        price_upper: Type.Number({ exclusiveMinimum: 0 }),
      },
      { description: 'A goal of your own.' },
    ),
  ),
});

type TextShopConfig = Static<typeof configSchema>;
type TextShopOptions = Static<typeof optionsSchema>;

/** TextShop-v0: a generated shop in text with the pages, search and reward of WebShop (Yao et al.), or WebShop's own products. */
export const textShop = {
  spec: {
    id: 'TextShop-v0',
    aliases: ['WebShop-v0'],
    title: 'Shopping by instruction',
    description: [
      'A customer names a product with attributes, options and an upper price. The player searches a shop, opens products, chooses options and buys one; the purchase ends the episode. A search shows the best 50 products by BM25, ten a page.',
      '',
      'The purchase is worth r = r_type · (attribute hits + option hits + price hit) / (attributes + options + 1), where r_type falls below 1 for another kind of product. With `reward_mode` strict a purchase pays 1 for r = 1 and else 0, with partial it pays r. Success is r = 1. Everything else pays 0; an action that the page does not offer changes nothing and is invalid.',
      '',
      'The shop is generated: some 1,000 products and 2,000 goals, with the pages, search and reward of WebShop. `products`, `attributes` and `instructions` name the files that WebShop published, to shop among its own products. `info` has `page`, and at the end `raw_reward` (r), `attribute_hits`, `option_hits`, `price_hit` and `r_type`. `info.rewards` has the shares of the goal that a purchase meets: `product` (r_type), `attributes`, `options` and `price`.',
    ].join('\n'),
    tags: ['shopping', 'search', 'text'],
    configSchema,
    optionsSchema,
    presets: {
      partial: { reward_mode: 'partial' },
      ...SPLIT_PRESETS,
    },
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_ACTION_LENGTH, charset: LINES },
    ...MARKED_WORDS,
    knownOptimum: { success: 1, source: 'reference policy `oracle`, which knows the product' },
    maxEpisodeSteps: MAX_STEPS,
    ends: {
      bought: 'Bought what was asked for',
      wrong_product: 'Bought another kind of product',
      too_expensive: 'Bought above the upper price',
      wrong_options: 'Bought with other options',
      wrong_attributes: 'Bought a product that lacks attributes',
    },
    exampleAction: 'search[waterproof rain jacket]',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: ({ max_steps }: TextShopConfig) => ({
    instruction: `You are shopping. Buy the product that the instruction asks for: search with a few words, open a product, choose its options and click Buy Now. You have ${max_steps} actions, and there is one purchase.`,
    actionFormat: 'search[words] on the search page; click[something] that the page offers',
  }),

  observationSpaces({ products, attributes, instructions }: TextShopConfig): ObservationSpaces {
    const line = words([products, attributes, instructions])(MAX_OBSERVATION_LENGTH);
    return {
      text: line,
      structured: dict({
        instruction: line,
        where: dict({
          page: choice(...PAGES),
          results: list(line),
          number: COUNT,
          asin: orNull(line),
          detail: orNull(choice(...DETAILS)),
          chosen: list(dict({ option: line, value: line })),
        }),
        segments: list(line),
        actions: list(line),
        bought: FLAG,
      }),
    };
  },

  checkConfig({ products, attributes, instructions }: TextShopConfig): void {
    if (products === undefined && (attributes ?? instructions) !== undefined) {
      throw new InvalidConfig(
        '/products',
        'attributes and instructions need the products that they belong to',
      );
    }
    if (products !== undefined && (attributes ?? instructions) === undefined) {
      throw new InvalidConfig(
        '/products',
        'products need attributes or instructions, from which goals are made',
      );
    }
  },

  async reset(config: TextShopConfig, rng: Random, options: JsonObject): Promise<TextShopState> {
    const { products, attributes, instructions } = config;
    const files =
      products === undefined
        ? null
        : { products, ...(attributes && { attributes }), ...(instructions && { instructions }) };
    const shop = await openShop(files);
    const goal = chooseGoal(shop, config, rng, options);
    const page = showPage(shop, ENTRANCE, goal);
    return { files, strict: config.reward_mode === 'strict', goal, where: ENTRANCE, page, verdict: null };
  },

  step(state: TextShopState, action: Json): Transition<TextShopState> | Promise<Transition<TextShopState>> {
    const shop = openShop(state.files);
    return shop instanceof Promise
      ? shop.then(opened => step(opened, state, action))
      : step(shop, state, action);
  },

  observe(state: TextShopState, format: ObservationFormat): Json {
    const { page, where, goal, verdict } = state;
    if (format === 'structured') {
      const { instruction } = goal;
      const chosen = Object.entries(where.chosen).map(([option, value]) => ({ option, value }));
      return {
        instruction,
        where: { ...where, chosen },
        segments: page.segments,
        actions: offers(state),
        bought: verdict !== null,
      };
    }
    const text = page.segments.join(SEPARATOR);
    return verdict
      ? `${text}\nReward: ${verdict.reward.toFixed(2)}`
      : `${text}\nPossible actions: ${offers(state).join(', ')}`;
  },

  render: ({ page }: TextShopState) => paintPage(paintedParts(page)),

  tools: TOOLS,

  references: { oracle, random },
} satisfies Environment<TextShopConfig, TextShopState>;

/** Actions of the page, with `search[words]` for any search. */
function offers({ page, where }: TextShopState): string[] {
  const clicks = page.clickables.map(name => `click[${name}]`);
  return where.page === 'search' ? ['search[words]', ...clicks] : clicks;
}

function chooseGoal(
  shop: Shop,
  { split }: TextShopConfig,
  rng: Random,
  { goal, index }: TextShopOptions,
): Goal {
  if (!goal) return pick(shop.goalsOf(split), index, rng);
  if (!shop.find(goal.asin)) throw new InvalidOptions('/goal/asin', `the shop has no product ${goal.asin}`);
  return goal;
}

function step(shop: Shop, state: TextShopState, action: Json): Transition<TextShopState> {
  const where = state.verdict ? null : follow(shop, state, action);
  if (!where) return transition(state, 0, false, false);
  if (where.page !== 'bought') {
    const page = showPage(shop, where, state.goal);
    const effective = JSON.stringify(where) !== JSON.stringify(state.where);
    return transition({ ...state, where, page }, 0, true, effective);
  }
  const wanted = shop.find(state.goal.asin) as Product;
  const verdict = judge(shop.find(where.asin ?? '') as Product, where.chosen, state.goal, wanted);
  const perfect = verdict.reward >= 1 - EPSILON;
  const reward = state.strict ? Number(perfect) : verdict.reward;
  return transition(
    { ...state, where, page: showPage(shop, where, state.goal), verdict },
    reward,
    true,
    true,
  );
}

function transition(
  state: TextShopState,
  reward: number,
  valid: boolean,
  effective: boolean,
): Transition<TextShopState> {
  const { verdict, where, goal } = state;
  const perfect = verdict !== null && verdict.reward >= 1 - EPSILON;
  return {
    state,
    reward,
    terminated: verdict !== null,
    info: stepInfo(perfect, valid, effective, verdict && (perfect ? 'bought' : faultOf(verdict, goal)), {
      page: where.page,
      rewards: verdict && effective ? purchaseRewards(verdict, goal) : NO_REWARDS,
      ...(verdict && {
        raw_reward: verdict.reward,
        r_type: verdict.r_type,
        attribute_hits: verdict.attribute_hits,
        option_hits: verdict.option_hits,
        price_hit: verdict.price_hit,
      }),
    }),
  };
}

const NO_REWARDS = { product: 0, attributes: 0, options: 0, price: 0 };

/** Shares of the goal that a purchase meets; 1 for options where the goal has none. */
function purchaseRewards(verdict: Verdict, { attributes, options }: Goal): typeof NO_REWARDS {
  return {
    product: verdict.r_type,
    attributes: share(verdict.attribute_hits, attributes.length),
    options: share(verdict.option_hits, options.length),
    price: Number(verdict.price_hit),
  };
}

const share = (hits: number, wanted: number): number => (wanted === 0 ? 1 : hits / wanted);

/** The first fault of a purchase. */
function faultOf({ r_type, price_hit, option_hits }: Verdict, { options }: Goal): string {
  if (r_type < 1) return 'wrong_product';
  if (!price_hit) return 'too_expensive';
  return option_hits < options.length ? 'wrong_options' : 'wrong_attributes';
}

/** Page that an action leads to, or null when the current page does not offer it. */
function follow(shop: Shop, { where, page }: TextShopState, action: Json): PageAddress | null {
  if (typeof action !== 'string' || action.length > MAX_ACTION_LENGTH) return null;
  const [, verb, argument] = /^\s*(search|click)\s*\[(.+)\]\s*$/is.exec(action) ?? [];
  const words = argument?.trim() ?? '';
  if (words === '') return null;
  if (verb.toLowerCase() === 'search') {
    if (where.page !== 'search') return null;
    return { ...ENTRANCE, page: 'results', results: shop.search(words) };
  }
  const clicked = page.clickables.find(name => name.toLowerCase() === words.toLowerCase());
  return clicked === undefined ? null : click(shop, where, clicked);
}

function click(shop: Shop, where: PageAddress, clicked: string): PageAddress {
  switch (clicked) {
    case BACK:
      return ENTRANCE;
    case NEXT:
      return { ...where, number: where.number + 1 };
    case PREVIOUS:
      if (where.page === 'detail') return { ...where, page: 'item', detail: null };
      if (where.page === 'item') return { ...where, page: 'results', asin: null, chosen: {} };
      return { ...where, number: where.number - 1 };
    case BUY:
      return { ...where, page: 'bought' };
  }
  if (where.page === 'results') return { ...where, page: 'item', asin: clicked };
  const detail = DETAILS.find(name => name === clicked);
  if (detail) return { ...where, page: 'detail', detail };
  const { options } = shop.find(where.asin ?? '') as Product;
  const option = Object.keys(options).find(name => options[name].includes(clicked)) as string;
  return { ...where, chosen: { ...where.chosen, [option]: clicked } };
}
