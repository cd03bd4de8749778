import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { buildWordTokenizer } from '../../models/tokenizer/builder.ts';
import { JsonGrammars } from './json-grammars.ts';

const characters = [...'{}[]",:-.0123456789eE+\\/bfnrtu'].concat(
  [...'abcdghijklmopqsvwxyzABCDFUDownp '],
  ['true', 'null', '":'],
);
const tokenizer = buildWordTokenizer(new Set(characters));
const STOP = 2;
const grammars = new JsonGrammars(tokenizer, tokenizer.vocabularySize, [STOP]);

/** A random text that the grammar of a schema allows; the shortest way out after some tokens. */
async function randomText(schema: JsonObject, seed: number): Promise<string> {
  const { states, start } = await grammars.of(schema);
  const distance = states.map(({ tokens }) => (tokens.length === 0 ? 0 : Number.POSITIVE_INFINITY));
  for (let changed = true; changed; ) {
    changed = false;
    states.forEach(({ next }, s) => {
      const found = Math.min(...next.map(to => distance[to])) + 1;
      if (found < distance[s]) {
        distance[s] = found;
        changed = true;
      }
    });
  }
  const rng = Random.fromSeed(seed);
  const ids: number[] = [];
  for (let state = start; states[state].tokens.length > 0; ) {
    const { tokens, next } = states[state];
    const nearest = next.reduce((best, to, i) => (distance[to] < distance[next[best]] ? i : best), 0);
    const i = ids.length > 30 ? nearest : rng.integer(tokens.length);
    if (tokens[i] !== STOP) ids.push(tokens[i]);
    state = next[i];
  }
  return tokenizer.decode(ids);
}

t.test('every text of a grammar is JSON that fits the schema', async t => {
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
  for (let seed = 0; seed < 200; seed++) {
    const text = await randomText(schema, seed);
    const value = JSON.parse(text);
    t.ok(['Up', 'Down'].includes(value.go), text);
    t.ok(value.list.length >= 1 && value.list.length <= 2, text);
    t.ok(value.n === undefined || Number.isInteger(value.n), text);
    t.ok(value.note === undefined || value.note.length <= 5, text);
  }
});

t.test('a schema that says nothing allows any JSON', async t => {
  for (let seed = 0; seed < 100; seed++)
    t.type(JSON.parse(await randomText({ type: 'object' }, seed)), 'object');
});

t.test('what a grammar cannot keep to is refused by name', async t => {
  const refused = (schema: JsonObject) => grammars.of(schema);
  await t.rejects(refused({ type: 'string', pattern: 'a' }), /keyword "pattern" cannot be kept to/);
  await t.rejects(refused({ $ref: '#/none' }), /leads nowhere/);
  await t.rejects(
    refused({ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }),
    /refers to itself/,
  );
  await t.rejects(refused({ type: 'list' }), /type "list" is not known/);
  const large = { type: 'array', maxItems: 256, items: { type: 'string', maxLength: 512 } };
  await t.rejects(refused(large), /too many states/);
  await t.rejects(refused({ const: '€' }), /can be written with the tokens/);
});

t.test('a schema that takes too long, or a vocabulary that is too large, is refused', async t => {
  const hurried = new JsonGrammars(tokenizer, tokenizer.vocabularySize, [STOP], 10);
  for (let again = 0; again < 2; again++) {
    await t.rejects(hurried.of({ type: 'object' }), /it takes too long to compile/);
  }
  const large = new JsonGrammars(tokenizer, 150_000, [STOP]);
  await t.rejects(large.of({ type: 'object' }), /a vocabulary of 150000 tokens is too large for schemas/);
});

t.test('a schema is compiled in slices, those of others behind it', async t => {
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
  t.ok(turns > 0, 'the event loop goes on meanwhile');
  t.same(ends.slice(0, 3), [-1, 0, 1]);
  const refused = results.flatMap(({ status }, n) => (status === 'rejected' ? [n] : []));
  t.same(refused, [31, 32]);
  t.match((results[32] as PromiseRejectedResult).reason, { status: 429 });
  t.equal(await others.of(schemas[0]), await others.of(schemas[0]), 'and kept');
});
