import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { type Goal, judge, type Product, tokenSetRatio } from './catalog.ts';
import { openShop, paintedParts, readProduct, Shop } from './shop.ts';
import { textShop } from './textshop.ts';

const play = playing(textShop);

t.test('the similarity of texts equals rapidfuzz’s', async t => {
  t.equal(tokenSetRatio('fuzzy was a bear', 'Fuzzy, fuzzy was a bear'), 100);
  t.equal(tokenSetRatio('new york mets', 'new york mets vs atlanta braves'), 100);
  t.equal(tokenSetRatio('this test', 'this text'), 89);
  t.equal(tokenSetRatio('abc', 'xyz'), 0);
  t.equal(tokenSetRatio('', 'xyz'), 0);
});

const SHOE: Product = {
  asin: 'B000000001',
  title: 'Alderway classic running shoes for men',
  category: 'fashion',
  query: 'running shoes',
  productCategory: 'Clothing › Shoes › Athletic',
  description: 'Made of breathable mesh.',
  features: ['Slip resistant sole'],
  attributes: ['arch support', 'wide fit'],
  options: { color: ['navy blue', 'red'], size: ['8', '9'] },
  prices: [40, 60],
  rating: '4.5',
  reviews: [],
};
const LAMP: Product = {
  ...SHOE,
  asin: 'B000000002',
  title: 'Kestrel desk lamp',
  query: 'desk lamp',
  productCategory: 'Home › Lighting › Lamps',
};
const GOAL: Goal = {
  asin: SHOE.asin,
  instruction: 'Find me running shoes',
  attributes: ['arch support', 'slip resistant', 'breathable mesh', 'glow in the dark'],
  options: ['blue', '9'],
  price_upper: 50,
};

t.test('the reward is r_type · hits / wishes', async t => {
  const all = judge(SHOE, { color: 'navy blue', size: '9' }, GOAL, SHOE);
  t.same(all, {
    reward: 6 / 7,
    r_type: 1,
    attribute_hits: 3,
    option_hits: 2,
    price_hit: true,
    title_score: 1,
  });
  t.match(judge(SHOE, { color: 'red', size: '8' }, GOAL, SHOE), { option_hits: 0, reward: 4 / 7 });
  t.match(judge(SHOE, {}, { ...GOAL, price_upper: 49 }, SHOE), { price_hit: false, reward: 3 / 7 });
  t.match(judge(LAMP, { color: 'navy blue', size: '9' }, GOAL, SHOE), { r_type: 0, reward: 0 });
  const half = { ...LAMP, title: 'Kestrel classic lamp' };
  const wordy = { ...SHOE, title: 'Alderway classic running shoes men light soft fast strong' };
  t.match(judge(half, {}, GOAL, wordy), { r_type: 0.5, title_score: 1 / 9 });
  const wordier = { ...wordy, title: `${wordy.title} grey stretch daily` };
  t.match(judge(half, {}, GOAL, wordier), { r_type: 0.1 });
  t.match(judge({ ...half, query: SHOE.query }, {}, GOAL, wordy), { r_type: 1 });
  t.match(judge({ ...half, productCategory: 'Shoes › Athletic' }, {}, GOAL, wordy), { r_type: 1 });
});

async function walk(config: JsonObject, options: JsonObject, actions: string[]) {
  let state = await play.reset(config, options);
  const seen: unknown[] = [];
  for (const action of actions) {
    const { state: next, info } = await play.step(state, action);
    seen.push([info.page, info.action_is_valid, info.action_is_effective]);
    state = next;
  }
  return { state, seen };
}

t.test('pages lead to each other', async t => {
  const first = (await play.reset({}, { index: 0 })) as Awaited<ReturnType<typeof textShop.reset>>;
  const shop = (await openShop(null)) as Shop;
  const product = shop.find(first.goal.asin) as Product;
  const value = Object.values(product.options)[0][0];
  const { state, seen } = await walk({}, { index: 0 }, [
    'click[Buy Now]',
    `SEARCH[${product.title}]`,
    'search[again]',
    'click[next >]',
    'click[< prev]',
    'click[< Prev]',
    `click[${product.asin.toLowerCase()}]`,
    'click[description]',
    'click[< Prev]',
    'click[Features]',
    'click[< Prev]',
    'click[Attributes]',
    'click[< Prev]',
    `click[${value}]`,
    `click[${value}]`,
    'click[]',
    'hello',
  ]);
  t.same(seen, [
    ['search', false, false],
    ['results', true, true],
    ['results', false, false],
    ['results', true, true],
    ['results', true, true],
    ['results', false, false],
    ['item', true, true],
    ['detail', true, true],
    ['item', true, true],
    ['detail', true, true],
    ['item', true, true],
    ['detail', true, true],
    ['item', true, true],
    ['item', true, true],
    ['item', true, false],
    ['item', false, false],
    ['item', false, false],
  ]);
  const text = play.text(state);
  t.ok(
    text.startsWith(`Instruction: [SEP] ${first.goal.instruction} [SEP] Back to Search [SEP] < Prev [SEP] `),
  );
  t.ok(text.includes(` [SEP] ${value} (chosen) [SEP] `));
  t.match(text, /\nPossible actions: click\[Back to Search\], click\[< Prev\], .*click\[Buy Now\]$/);
});

t.test('a search shows fifty results, ten a page', async t => {
  const { state } = await walk({}, { index: 3 }, [
    'search[premium]',
    ...new Array<string>(4).fill('click[Next >]'),
  ]);
  t.equal(state.where.results.length, 50);
  t.match(play.text(state), /Page 5 \(Total results: 50\) \[SEP\] < Prev \[SEP\] B0/);
  t.equal(state.page.clickables.filter(name => name.startsWith('B0')).length, 10);
  t.notOk(state.page.clickables.includes('Next >'));
  const painted = paintedParts((await walk({}, { index: 3 }, ['search[premium]'])).state.page);
  t.same(
    painted.filter(part => part.apart).map(part => part.text.slice(0, 2)),
    ['B0'],
    'the first product stands apart from the turns',
  );
  const none = await walk({}, { index: 3 }, ['search[xyzzy]']);
  t.match(play.text(none.state), /Total results: 0/);
});

t.test('strict pays only a perfect purchase, partial the fraction', async t => {
  const options = { index: 5 };
  const start = await play.reset({}, options);
  const actions = [
    `search[${((await openShop(null)) as Shop).find(start.goal.asin)?.title}]`,
    `click[${start.goal.asin}]`,
  ];
  const { state: strict } = await walk({}, options, actions);
  const { state: partial } = await walk({ reward_mode: 'partial' }, options, actions);
  const parts = start.goal.attributes.length + start.goal.options.length + 1;
  const r = (parts - start.goal.options.length) / parts;
  t.match(await play.step(strict, 'click[Buy Now]'), {
    reward: 0,
    terminated: true,
    info: {
      ...{ success: false, raw_reward: r, option_hits: 0, price_hit: true, ended_by: 'wrong_options' },
      rewards: { product: 1, attributes: 1, options: 0, price: 1 },
    },
  });
  const bought = await play.step(partial, 'click[buy now]');
  t.match(bought, { reward: r, terminated: true, info: { success: false } });
  t.match(await play.step(bought.state, 'click[buy now]'), {
    reward: 0,
    terminated: true,
    info: { rewards: { product: 0, attributes: 0, options: 0, price: 0 } },
  });
});

t.test('the oracle buys every kind of goal perfectly within nine actions', async t => {
  for (let index = 0; index < 400; index++) {
    const state = await play.reset({}, { index });
    const { success, steps } = await play.finish(state, 'oracle', 9);
    if (!success) t.fail(`goal ${index} after ${steps} actions: ${state.goal.instruction}`);
  }
  const elsewhere = (await walk({}, { index: 1 }, ['search[tea]'])).state;
  t.match(await play.finish(elsewhere, 'oracle', 9), { success: true });
});

t.test('splits are parts of the goals in order', async t => {
  const shop = (await openShop(null)) as Shop;
  t.equal(shop.goals.length, 2016);
  t.same(
    (['test', 'validation', 'train'] as const).map(split => shop.goalsOf(split).length),
    [168, 336, 1512],
  );
  t.equal(shop.goalsOf('validation')[0], shop.goals[168]);
  const many = new Shop([], new Array<Goal>(12_087).fill(GOAL));
  t.same(
    (['test', 'validation', 'train'] as const).map(split => many.goalsOf(split).length),
    [500, 1000, 10_587],
  );
  t.equal(new Set(shop.goals.map(goal => goal.instruction)).size > 1900, true, 'goals differ');
});

const PUBLIC: JsonObject[] = [
  {
    asin: 'B0AAAAAAA1',
    name: 'Norvik rain jacket',
    category: 'fashion',
    query: ' Rain Jacket ',
    product_category: 'Clothing › Coats',
    full_description: 'Keeps dry.',
    small_description: ['Waterproof', 'Light'],
    pricing: '$1,029.99 to $1,040.01',
    customization_options: { Color: [{ value: 'Red/Blue', image: 'x' }, { value: 'Black' }], Size: null },
    images: ['x'],
  },
  {
    asin: 'B0AAAAAAA2',
    name: 'Norvik cap',
    small_description: 'Cap',
    pricing: '',
    customization_options: {},
  },
];

t.test('the public data are read', async t => {
  t.match(readProduct(PUBLIC[0]), {
    prices: [1029.99, 1040.01],
    query: 'rain jacket',
    options: { color: ['red | blue', 'black'] },
  });
  t.match(readProduct(PUBLIC[1]), { prices: [100], options: {}, features: ['Cap'] });
  const folder = t.testdir({
    'products.json': JSON.stringify(PUBLIC),
    'attributes.json': JSON.stringify({
      B0AAAAAAA1: {
        attributes: ['waterproof'],
        instruction: 'find a jacket',
        instruction_attributes: ['waterproof'],
      },
    }),
    'people.json': JSON.stringify({
      B0AAAAAAA2: [
        { instruction: 'i want a cap.', instruction_attributes: ['cotton'], instruction_options: [] },
        { instruction: 'nothing in particular', instruction_attributes: [], instruction_options: [] },
      ],
    }),
    'odd.json': JSON.stringify({ B0AAAAAAA2: [{ instruction: 7 }] }),
    'wrong.json': JSON.stringify([PUBLIC[0], { ...PUBLIC[1], pricing: 'cheap $' }]),
    'cut.json': '{"B0AAAAAAA1": [], "B0AAAAAAA2": [',
    'bare.json': '{"B0AAAAAAA1": [], B0AAAAAAA2: []}',
  });
  const products = join(folder, 'products.json');
  const attributes = join(folder, 'attributes.json');
  const made = await play.reset({ products, attributes });
  t.match(
    made.goal.instruction,
    /^find a jacket with color: (red \| blue|black), and price lower than \d+\.00 dollars$/,
  );
  t.match(await play.finish(made, 'oracle', 9), { success: true });
  const asked = await play.reset({ products, attributes, instructions: join(folder, 'people.json') });
  t.match(asked.goal, { asin: 'B0AAAAAAA2', attributes: ['cotton'], options: [] });
  const wrong: [JsonObject, RegExp][] = [
    [{ products: join(folder, 'wrong.json'), attributes }, /row 2: field pricing/],
    [{ products }, /need attributes or instructions/],
    [{ attributes }, /need the products/],
    [{ products, attributes: products }, /not an object by ASIN/],
    [{ products, attributes: join(folder, 'none.json') }, /there is no data file/],
    [{ products, instructions: join(folder, 'cut.json') }, /cut.json, entry 2: the file ends early/],
    [{ products, instructions: join(folder, 'bare.json') }, /bare.json, entry 2: the entry is not JSON/],
    [
      { products, instructions: join(folder, 'odd.json') },
      /B0AAAAAAA2: field \[0\].instruction: expected text/,
    ],
  ];
  for (const [config, message] of wrong) {
    await t.rejects(async () => play.reset(config), { name: 'InvalidConfig', message });
  }
});

t.test('a goal of your own needs a product of the shop', async t => {
  const { asin } = (await play.reset()).goal;
  const goal = { ...GOAL, attributes: [...GOAL.attributes], options: [...GOAL.options], asin };
  t.equal((await play.reset({}, { goal })).goal.instruction, GOAL.instruction);
  await t.rejects(play.reset({}, { goal: { ...goal, asin: 'B999' } }), {
    name: 'InvalidOptions',
    pointer: '/goal/asin',
  });
});

t.test('keeps the contract', async t => checkContract(t, textShop));

t.test('a purchase ends by the first thing that is wrong with it', async t => {
  const { goal } = await play.reset({}, { index: 5 });
  const shop = (await openShop(null)) as Shop;
  const ended = async (changes: Partial<typeof goal>, bought = goal.asin) => {
    const wanted: JsonObject = { ...goal, options: [], ...changes };
    const title = shop.find(bought)?.title;
    const { state } = await walk({}, { goal: wanted }, [`search[${title}]`, `click[${bought}]`]);
    return (await play.step(state, 'click[Buy Now]')).info.ended_by;
  };
  const other = (await play.reset({}, { index: 40 })).goal.asin;
  t.not(shop.find(other)?.query, shop.find(goal.asin)?.query);
  t.equal(await ended({}), 'bought');
  t.equal(await ended({}, other), 'wrong_product');
  t.equal(await ended({ price_upper: 0.01, attributes: ['made of cheese'] }), 'too_expensive');
  t.equal(await ended({ options: ['polka dots'], attributes: ['made of cheese'] }), 'wrong_options');
  t.equal(await ended({ attributes: ['made of cheese'] }), 'wrong_attributes');
});
