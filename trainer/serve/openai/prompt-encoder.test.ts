import { setImmediate as othersFirst } from 'node:timers/promises';
import t from 'tap';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { goldenFolder } from '../serve.test-data.ts';
import { encodeUpTo, LONGEST_SHORT, PromptEncoder } from './prompt-encoder.ts';

const tokenizer = await loadTokenizer(goldenFolder('qwen2-tiny'));
const WORDS = 'The lake is frozen; the ice has 12 holes. ';
const text = (length: number) => WORDS.repeat(Math.ceil(length / WORDS.length)).slice(0, length);
const PLENTY = 10_000_000;

function encoderOf(one: Tokenizer = tokenizer) {
  const encoder = new PromptEncoder(one);
  t.teardown(() => encoder.close());
  return encoder;
}

t.test('texts of any length have the ids that the tokenizer gives', async t => {
  const encoder = encoderOf();
  for (const length of [0, 1, LONGEST_SHORT, LONGEST_SHORT + 1, 100_000]) {
    t.same(await encoder.encode(text(length), PLENTY), tokenizer.encode(text(length)), `${length}`);
  }
  const odd = `${'ä😀\ud800 '.repeat(5000)}<|im_end|>`;
  t.same(await encoder.encode(odd, PLENTY), tokenizer.encode(odd));
});

t.test('other clients are answered while a long text is tokenized', async t => {
  const encoder = encoderOf();
  await encoder.encode(text(10_000), PLENTY);
  let turns = 0;
  let isDone = false;
  const done = encoder.encode(text(500_000), PLENTY).finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await othersFirst();
    turns++;
  }
  await done;
  t.ok(turns > 100, `${turns} turns of the event loop`);
});

t.test(
  'of texts that come together the shortest is next, and those of clients that left are not tokenized',
  async t => {
    const encoder = encoderOf();
    const order: number[] = [];
    const gone = new AbortController();
    const left = [200_000, 400_000, 20_000, 10_000, 30_000].map(length =>
      encoder
        .encode(text(length), PLENTY, length === 400_000 ? gone.signal : undefined)
        .then(() => order.push(length)),
    );
    gone.abort(new Error('the client left'));
    await t.rejects(left[1], { message: 'the client left' });
    await Promise.allSettled(left);
    t.same(order, [200_000, 10_000, 20_000, 30_000]);
  },
);

t.test('shorter texts do not starve a long one', async () => {
  const encoder = encoderOf();
  let isDone = false;
  const first = encoder.encode(text(100_000), PLENTY);
  const long = encoder.encode(text(40_000), PLENTY).then(() => {
    isDone = true;
  });
  const ahead = async () => {
    while (!isDone) await encoder.encode(text(LONGEST_SHORT + 1), PLENTY);
  };
  await Promise.all([first, long, ahead(), ahead(), ahead()]);
});

t.test('a text with far too many tokens is known by its beginning', async t => {
  let tokenized = 0;
  const counting = {
    encode(part: string): number[] {
      tokenized += part.length;
      return tokenizer.encode(part);
    },
  };
  t.equal(encodeUpTo(counting, text(300_000), 100), undefined);
  t.equal(tokenized, 800);
  const fitting = text(3000);
  const { length } = tokenizer.encode(fitting);
  for (const most of [Math.ceil(length / 2), length, 10 * length]) {
    t.same(encodeUpTo(tokenizer, fitting, most), tokenizer.encode(fitting), `${most}`);
  }
  t.equal(await encoderOf().encode(text(300_000), 100), undefined, 'by the process');
});

t.test('a process that ends fails its text alone; nothing waits for a closed encoder', async t => {
  const files: Record<string, string> = { ...tokenizer.files, 'tokenizer.json': '{}' };
  const encoder = encoderOf({ ...tokenizer, files } as Tokenizer);
  const failed = await Promise.allSettled(
    [20_000, 30_000].map(length => encoder.encode(text(length), PLENTY)),
  );
  for (const one of failed)
    t.match(one, { status: 'rejected', reason: { message: /the tokenizer cannot be loaded: / } });
  files['tokenizer.json'] = tokenizer.files['tokenizer.json'];
  t.same(await encoder.encode(text(20_000), PLENTY), tokenizer.encode(text(20_000)), 'a new process');
  const open = Promise.allSettled([900_000, 30_000].map(length => encoder.encode(text(length), PLENTY)));
  await encoder.close();
  for (const one of await open)
    t.match(one, { status: 'rejected', reason: { message: 'the encoder is closed' } });
  await t.rejects(encoder.encode(text(20_000), PLENTY), { message: 'the encoder is closed' });
});

/** A tokenizer with a pattern that takes 2^N steps for a text of N letters and a mark. */
const SLOW = {
  ...tokenizer.files,
  'tokenizer.json': JSON.stringify({
    ...JSON.parse(tokenizer.files['tokenizer.json']),
    pre_tokenizer: { type: 'Split', pattern: { Regex: '(?:a|a)*$' }, behavior: 'Isolated', invert: false },
  }),
};

t.test(
  'a pattern or template without end, or without memory, ends at its limit and fails its job alone',
  async t => {
    const template = `
    {%- if messages[0].content == 'loop' %}{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}{% endif %}
    {%- if messages[0].content == 'fill' %}
      {%- set held = namespace(all=[0]) %}
      {%- for i in range(40) %}{% set held.all = held.all + held.all %}{% endfor %}
    {%- endif %}
    {%- if messages[0].content == 'long' %}
      {%- set held = namespace(text='x') %}
      {%- for i in range(24) %}{% set held.text = held.text ~ held.text %}{% endfor %}
      {{- held.text }}
    {%- endif %}
    {{- messages[0].content -}}`;
    const encoder = new PromptEncoder({ files: { ...SLOW, 'chat_template.jinja': template } });
    t.teardown(() => encoder.close());
    const render = (content: string) =>
      encoder.render([{ role: 'user', content }], { addGenerationPrompt: false });
    t.equal(await render('hello'), 'hello');
    let longestMs = 0;
    let last = performance.now();
    const watch = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - last);
      last = performance.now();
    }, 10);
    await t.rejects(render('loop'), { name: 'TextLimitError', message: /^takes more than 2/ });
    await t.rejects(encoder.encode(`${'a'.repeat(60)}!`, 100), { name: 'TextLimitError' });
    await t.rejects(render('fill'), { name: 'TextLimitError', message: /MiB of memory|takes more than 2/ });
    await t.rejects(render('long'), { name: 'TextJobError', message: /a text of 167772\d\d characters/ });
    clearInterval(watch);
    t.ok(longestMs < 1000, `the event loop was held for ${longestMs} ms`);
    t.equal(await render('hello'), 'hello', 'others are answered as before');
  },
);
