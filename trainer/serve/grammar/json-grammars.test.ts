import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { TextGrammarMatcher } from '../../generation/grammar.ts';
import { buildWordTokenizer } from '../../models/tokenizer/builder.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { JsonGrammars } from './json-grammars.ts';

const characters = [...'{}[]",:-.0123456789eE+\\/bfnrtu'].concat(
  [...'abcdghijklmopqsvwxyzABCDFUDownp '],
  ['true', 'null', '":'],
);
const tokenizer = buildWordTokenizer(new Set(characters));
const STOP = 2;
const grammars = new JsonGrammars(tokenizer, tokenizer.vocabularySize, [STOP]);

interface Way {
  readonly token: number;
  readonly to: number;
}

/** Tokens and states after every state that a response can be in, and the fewest tokens from each to an end. */
async function waysOf(
  schema: JsonObject,
): Promise<{ ways: Map<number, Way[]>; distance: Map<number, number> }> {
  const matcher = new TextGrammarMatcher(await grammars.of(schema), tokenizer.vocabularySize);
  const ways = new Map<number, Way[]>();
  const distance = new Map<number, number>();
  for (const open = [matcher.start]; open.length > 0; ) {
    const state = open.pop()!;
    if (ways.has(state)) continue;
    if (matcher.isFinal(state)) distance.set(state, 0);
    const allowed = matcher.isFinal(state) ? new Uint8Array() : matcher.allowedIn(state);
    const after = [...allowed.keys()]
      .filter(token => allowed[token] === 1)
      .map(token => ({ token, to: matcher.stateAfter(state, token) }));
    ways.set(state, after);
    open.push(...after.map(({ to }) => to));
  }
  const distanceOf = (state: number) => distance.get(state) ?? Number.POSITIVE_INFINITY;
  for (let changed = true; changed; ) {
    changed = false;
    for (const [state, after] of ways) {
      const found = after.reduce((least, { to }) => Math.min(least, distanceOf(to) + 1), distanceOf(state));
      if (found < distanceOf(state)) {
        distance.set(state, found);
        changed = true;
      }
    }
  }
  return { ways, distance };
}

/** A random text that the grammar of a schema allows; the shortest way out after some tokens. */
function randomText({ ways, distance }: Awaited<ReturnType<typeof waysOf>>, seed: number): string {
  const rng = Random.fromSeed(seed);
  const ids: number[] = [];
  for (let state = 0; distance.get(state) !== 0; ) {
    const after = ways.get(state)!;
    const nearest = after.reduce((best, way) =>
      distance.get(way.to)! < distance.get(best.to)! ? way : best,
    );
    const { token, to } = ids.length > 30 ? nearest : after[rng.integer(after.length)];
    if (token !== STOP) ids.push(token);
    state = to;
  }
  return tokenizer.decode(ids);
}

t.test('every text of a grammar is JSON that matches the schema', async t => {
  const schema: JsonObject = {
    type: 'object',
    properties: {
      go: { enum: ['Up', 'Down'] },
      n: { type: 'integer' },
      x: { type: 'number' },
      list: { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 2 },
      note: { type: 'string', maxLength: 5 },
      inner: { $ref: '#/$defs/inner' },
    },
    required: ['go', 'list'],
    additionalProperties: false,
    $defs: { inner: { type: ['object', 'null'], properties: { a: { const: 1 } } } },
  };
  const found = await waysOf(schema);
  t.ok(
    [...found.ways.keys()].every(state => found.distance.has(state)),
    'every state leads to an end',
  );
  for (let seed = 0; seed < 200; seed++) {
    const text = randomText(found, seed);
    const value = JSON.parse(text);
    t.ok(['Up', 'Down'].includes(value.go), text);
    t.ok(value.list.length >= 1 && value.list.length <= 2, text);
    t.ok(value.n === undefined || Number.isInteger(value.n), text);
    t.ok(value.note === undefined || value.note.length <= 5, text);
  }
});

t.test('an empty schema allows any JSON', async t => {
  const found = await waysOf({ type: 'object' });
  for (let seed = 0; seed < 100; seed++) t.type(JSON.parse(randomText(found, seed)), 'object');
});

t.test('keywords that a grammar cannot enforce are rejected by name', async t => {
  const refused = (schema: JsonObject) => grammars.of(schema);
  await t.rejects(refused({ type: 'string', pattern: 'a' }), /keyword "pattern" is not supported/);
  await t.rejects(refused({ $ref: '#/none' }), /points to nothing/);
  await t.rejects(
    refused({ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }),
    /refers to itself/,
  );
  await t.rejects(refused({ type: 'list' }), /type "list" is not known/);
  const large = { type: 'array', maxItems: 256, items: { type: 'string', maxLength: 512 } };
  await t.rejects(refused(large), /too many states/);
  await t.rejects(refused({ const: '€' }), /can be written with the tokens/);
  const deep = `#${'/a'.repeat(65)}`;
  await t.rejects(refused({ $ref: deep }), /a \$ref has more than 64 keys/);
  for (const [required, message] of [
    ['a', /required must be a list of names/],
    [['a', 'b'], /required names "b", which is not one of the properties/],
    [[1], /required names 1, which is not one of the properties/],
  ] as const) {
    await t.rejects(refused({ type: 'object', properties: { a: true }, required }), message);
  }
  await t.rejects(refused({ type: 'object', required: ['a'] }), /which is not one of the properties/);
});

t.test('a schema that is too long is rejected before it is parsed', async t => {
  const anyOf = Array(10_000).fill({ $ref: '#/$defs/a' });
  await t.rejects(
    grammars.of({ $defs: { a: { pattern: 'a' } }, anyOf }),
    /the schema has \d+ characters; the limit is 131072/,
  );
});

t.test('a schema that takes too long is refused', async t => {
  const hurried = new JsonGrammars(tokenizer, tokenizer.vocabularySize, [STOP], 10);
  for (let again = 0; again < 2; again++) {
    await t.rejects(hurried.of({ type: 'object' }), /it takes too long to compile/);
  }
});

t.test('words are spelled with tokens of several characters', async t => {
  const words = buildWordTokenizer(new Set(['"Up"', '"Do', 'wn"', 'wnright']));
  const grammar = await new JsonGrammars(words, words.vocabularySize, [STOP]).of({
    enum: ['Up', 'Down', 'Left'],
  });
  const matcher = new TextGrammarMatcher(grammar, words.vocabularySize);
  const texts = (state: number) =>
    [...matcher.allowedIn(state).entries()].flatMap(([id, on]) => (on ? [words.decode([id])] : []));
  t.same(texts(0).sort(), ['"Do', '"Up"']);
  const [down] = words.encode('"Do');
  const after = matcher.stateAfter(0, down);
  t.same(texts(after), ['wn"']);
  t.ok(matcher.isFinal(matcher.stateAfter(after, words.encode('wn"')[0])));
});

t.test('a vocabulary of 150,000 tokens has masks of the tokens that fit', async t => {
  const SIZE = 150_000;
  const plain = tokenizer.vocabularySize;
  const textOf = (id: number) =>
    id < plain
      ? tokenizer.decode([id], { skipSpecial: true })
      : `${id % 7 ? '' : ' '}${(id * 7919) % SIZE}${id % 50 ? '' : '":'}`;
  const large: Tokenizer = {
    ...tokenizer,
    vocabularySize: SIZE,
    encode: () => [],
    decode: ids => textOf(ids[0]),
  };
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer' }, s: { type: 'string' } },
    required: ['n', 's'],
  };
  const grammar = await new JsonGrammars(large, SIZE, [STOP]).of(schema as JsonObject);
  const matcher = new TextGrammarMatcher(grammar, SIZE);
  const after = (text: string) =>
    [...text].reduce(
      (state, character) => matcher.stateAfter(state, tokenizer.encode(character)[0]),
      matcher.start,
    );
  for (const [begun, fits] of [
    ['{"n":1', /^\d+$/],
    ['{"n":1,"s":"', /^[^"\\]+$|^ ?[^"\\]*"$/],
  ] as const) {
    const allowed = matcher.allowedIn(after(begun));
    const wrong = Array.from({ length: SIZE - plain }, (_, i) => plain + i).filter(
      id => (allowed[id] === 1) !== fits.test(textOf(id)),
    );
    t.same(wrong.map(textOf), [], begun);
  }
});

t.test('a schema is compiled in slices, and others wait behind it', async t => {
  const others = new JsonGrammars(tokenizer, tokenizer.vocabularySize, [STOP]);
  const schemas = Array.from({ length: 33 }, (_, n) => ({ enum: [n] }));
  let turns = 0;
  const count = setInterval(() => turns++, 0);
  const ends: number[] = [];
  const slow = others.of({ type: 'object' }).then(() => ends.push(-1));
  const results = await Promise.allSettled(
    schemas.map(async (schema, n) => {
      await others.of(schema);
      ends.push(n);
    }),
  );
  await slow;
  clearInterval(count);
  t.ok(turns > 0, 'the event loop runs meanwhile');
  t.same(ends.slice(0, 3), [-1, 0, 1]);
  const refused = results.flatMap(({ status }, n) => (status === 'rejected' ? [n] : []));
  t.same(refused, [31, 32]);
  t.match((results[32] as PromiseRejectedResult).reason, { status: 429 });
  t.equal(await others.of(schemas[0]), await others.of(schemas[0]), 'and kept');
});
