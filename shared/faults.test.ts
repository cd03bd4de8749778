import t from 'tap';
import { type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import { faultsOf, faultText, oversizeOf, withFewUnknown } from './faults.ts';

const closed = (properties: { [key: string]: TSchema }, more: object = {}) =>
  Type.Object(properties, { additionalProperties: false, ...more });
const Wrapper = closed({ name: Type.String() }, { examples: [{ name: 'record' }] });
const Schema = closed({
  size: Type.Optional(Type.Integer({ minimum: 2 })),
  map: Type.Optional(Type.Union([Type.Literal('4x4'), Type.Literal('8x8')])),
  mode: Type.Optional(Type.Enum(['text', 'png'])),
  seed: Type.Optional(Type.Union([Type.Integer({ minimum: 0 }), Type.Null()])),
  place: Type.Optional(Type.Union([Type.Array(Type.Integer()), closed({ row: Type.Integer() })])),
  wrappers: Type.Optional(Type.Array(Wrapper)),
  headers: Type.Optional(Type.Record(Type.String(), Type.String())),
});

function messagesOf(value: unknown, schema: TSchema = Schema): string[] {
  const short = withFewUnknown(schema, value);
  return faultsOf(schema, short, Value.Errors(schema, short)).map(fault => faultText(fault, 'the value'));
}

t.test('values of keys that name a secret are not repeated, others are', async t => {
  const problemAt = (key: string) => {
    const schema = Type.Object({ [key]: Type.Boolean() });
    return messagesOf({ [key]: 's3cret' }, schema)[0];
  };
  const secret = ['token', 'api_key', 'apiKey', 'APIKEY', 'X-Auth-Token', 'accessToken', 'password'];
  for (const key of [...secret, 'client_secret', 'Authorization', 'headers', 'authtoken', 'cookie'])
    t.equal(problemAt(key), `${key} must be boolean`, key);
  for (const key of ['max_tokens', 'maxTokens', 'tokens', 'tokenizer', 'author', 'keyboard', 'stop_tokens'])
    t.equal(problemAt(key), `${key} must be boolean, got "s3cret"`, key);
});

t.test('a fault says where it is, what it is and what would be right', async t => {
  const cases: readonly (readonly [value: unknown, text: string])[] = [
    [5, 'the value must be object, got 5'],
    [{ size: 'big' }, 'size must be integer, got "big"'],
    [{ size: 1 }, 'size must be >= 2, got 1'],
    [{ map: '6x6' }, 'map must be one of "4x4", "8x8", got "6x6"'],
    [{ mode: 'jpg' }, 'mode must be one of text, png, got "jpg"'],
    [{ seed: -1 }, 'seed must be >= 0, got -1'],
    [{ size: Infinity }, 'size must be integer, got Infinity, a number beyond ±1.8e308'],
    [{ seed: -Infinity }, 'seed must be integer, got -Infinity, a number beyond ±1.8e308'],
    [{ seed: '1' }, 'seed must be integer or null, got "1"'],
    [{ place: { row: 'x' } }, 'place/row must be integer, got "x"'],
    [{ place: [1, 'x'] }, 'place/1 must be integer, got "x"'],
    [{ place: 3 }, 'place must be array or object, got 3'],
    [{ wrappers: ['record'] }, 'wrappers/0 must be object, got "record", e.g. {"name":"record"}'],
    [{ wrappers: [{}] }, 'wrappers/0: "name" is required, e.g. {"name":"record"}'],
    [
      { wrappers: [{ name: 'a', nam: 1 }] },
      'wrappers/0: unknown key "nam", did you mean `name`?; known are name',
    ],
    [
      { wrappers: [], siez: 1 },
      'unknown key "siez", did you mean `size`?; known are size, map, mode, seed, place, wrappers, headers',
    ],
    [{ 'a/b~c': 1 }, 'unknown key "a/b~c"; known are size, map, mode, seed, place, wrappers, headers'],
    [{ headers: { authorization: 1 } }, 'headers/authorization must be string'],
    [{ size: 'x'.repeat(1000) }, `size must be integer, got "${'x'.repeat(59)}…`],
  ];
  for (const [value, text] of cases) t.same(messagesOf(value), [text], JSON.stringify(value).slice(0, 80));
});

t.test('a pointer leads to what is wrong', async t => {
  const value = { 'a/b~c': 1, wrappers: [{ name: 1 }] };
  const pointers = faultsOf(Schema, value, Value.Errors(Schema, value)).map(({ pointer }) => pointer);
  t.same(pointers.sort(), ['/a~1b~0c', '/wrappers/0/name']);
});

t.test('of many unknown keys a few are named, together with all other faults', async t => {
  const many = Object.fromEntries(Array.from({ length: 200_000 }, (_, i) => [`k${i}`, 1]));
  for (const value of [many, { ...many, wrappers: [] }, { wrappers: [{ ...many, name: 'a' }] }]) {
    const texts = messagesOf(value);
    t.ok(texts.length > 0 && texts.length <= 8, `${texts.length}`);
    t.match(texts[0], /unknown key "k0"/);
  }
  t.ok(messagesOf({ ...many, size: 'x' }).includes('size must be integer, got "x"'));
  t.equal(withFewUnknown(Type.Object({}), many), many, 'an open object is left as it is');
  const fits = { size: 3, wrappers: [{ name: 'a' }] };
  t.equal(withFewUnknown(Schema, fits), fits);
});

t.test('a list longer than its schema allows is found before its items are read', async t => {
  const List = Type.Array(Wrapper, { maxItems: 2 });
  const Names = closed({ type: Type.Literal('names'), of: Type.Array(Type.String(), { maxItems: 1 }) });
  const Text = closed({ type: Type.Literal('text') });
  const Bounded = closed({
    list: Type.Optional(List),
    map: Type.Optional(Type.Record(Type.String(), List, { maxProperties: 2 })),
    text: Type.Optional(Type.String({ maxLength: 3 })),
    either: Type.Optional(Type.Union([Names, Text])),
  });
  const cases: readonly (readonly [value: unknown, text: string | undefined])[] = [
    [5, undefined],
    [
      {
        list: [{ name: 'a' }, 5],
        text: '🧊🧊🧊',
        map: { a: [], b: 3 },
        either: { type: 'text', of: [1, 2] },
      },
      undefined,
    ],
    [{ list: [1, 2, 3] }, 'list must not have more than 2 items, got a list of 3'],
    [{ map: { a: 1, b: 2, c: 3 } }, 'map must not have more than 2 keys, got an object of 3'],
    [{ map: { 'a/b': [1, 2, 3] } }, 'map/a~1b must not have more than 2 items, got a list of 3'],
    [{ text: 'x'.repeat(7) }, 'text must not have more than 3 characters, got "xxxxxxx"'],
    [
      { either: { type: 'names', of: ['a', 'b'] } },
      'either/of must not have more than 1 item, got a list of 2',
    ],
  ];
  for (const [value, text] of cases) {
    const fault = oversizeOf(Bounded, value);
    t.equal(fault && faultText(fault, 'the value'), text);
  }
});
