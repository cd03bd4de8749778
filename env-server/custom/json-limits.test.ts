import t from 'tap';
import { faultOf, JsonOutOfBounds, jsonLimits, readAnswer, readValue } from './json-limits.ts';

const LIMITS = jsonLimits(10_000);
const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
const nestedObjects = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;

t.test('an answer within the limits is read as it is', async t => {
  const answer = { state: { n: 1, list: [1, 'ü', null, true, 1e-7] }, info: {}, reward: -0.5 };
  t.same(readAnswer(JSON.stringify(answer), LIMITS), answer);
  t.same(readAnswer('"text"', LIMITS), 'text');
  t.same(readValue(nested(64), '/state', LIMITS), JSON.parse(nested(64)));
});

t.test('an answer outside the limits is refused with pointer and limit', async t => {
  const hostile: { [name: string]: [text: string, message: RegExp] } = {
    '65 levels of lists': [`{"info":${nested(65)}}`, /^\/info\/0.*nested more than 64 levels deep$/],
    '65 levels of objects': [`{"info":${nestedObjects(65)}}`, /^\/info\/a.*nested more than 64 levels/],
    '1,000 levels': [`{"info":${nestedObjects(1000)}}`, /^\/info\/a.*nested more than 64 levels/],
    '6,500 levels': [`{"info":${nestedObjects(6500)}}`, /^\/info\/a.*nested more than 64 levels/],
    '100,000 levels': [nested(100_000), /nested more than 64 levels/],
    'a long text': [`{"info":{"x":"${'x'.repeat(10_001)}"}}`, /^\/info\/x .*10000 bytes$/],
    'a long text of few characters': [`{"seen":"${'🧊'.repeat(2600)}"}`, /^\/seen has more than 10000 bytes/],
    'a long list': [`{"valid":[${'1,'.repeat(6000)}1]}`, /^\/valid\/\d+ .*10000 bytes/],
    'a list of empty lists': [`{"valid":[${'[],'.repeat(6000)}1]}`, /^\/valid.* 10000 bytes/],
    'a long key': [`{"info":{"${'k'.repeat(20_000)}":1}}`, /^\/info\/k+…k+ .*10000 bytes/],
    'many keys in all': [
      `{"info":[${'{"a":1,"b":1},'.repeat(6000)}1]}`,
      /^\/info\/\d+ brings the value to more than 10000 keys/,
    ],
    'many members': [
      `{${'"a":1,'.repeat(1)}${Array.from({ length: 10_001 }, (_, i) => `"k${i}":1`)}}`,
      /10000 keys/,
    ],
    'a number that is infinite': ['{"info":{"x":1e999}}', /^\/info\/x is Infinity, not a finite number/],
    'an infinite reward': ['{"reward":-1e999}', /^\/reward is -Infinity/],
    '__proto__ inside': ['{"info":{"__proto__":{"x":1}}}', /^\/info\/__proto__ has a key/],
    '__proto__ outside': ['{"__proto__":{"x":1}}', /^\/__proto__ is not allowed as a key/],
    'half a pair in a key': [
      '{"info":{"\\ud83e":1}}',
      /^\/info\/\uFFFD has a key with half of a surrogate pair/,
    ],
  };
  const wide = jsonLimits(100_000);
  for (const [name, [text, message]] of Object.entries(hostile)) {
    try {
      readAnswer(text, name === 'many keys in all' ? wide : LIMITS);
      t.fail(`${name} was taken`);
    } catch (error) {
      t.ok(error instanceof JsonOutOfBounds, `${name}: ${error}`);
      t.match((error as Error).message, message, name);
      t.ok((error as Error).message.length < 500, `${name}: the message is short`);
      t.ok((error as Error).message.isWellFormed());
    }
  }
});

t.test('halves of surrogate pairs from an environment become U+FFFD', async t => {
  t.same(readAnswer('{"seen":"\\ud83e!","info":{"a":["\\udd16"]}}', LIMITS), {
    seen: '\uFFFD!',
    info: { a: ['\uFFFD'] },
  });
  t.same(readValue('"\\ud83e"', '/state', LIMITS), '\uFFFD');
  t.same(readAnswer('{"seen":"🧊"}', LIMITS), { seen: '🧊' });
});

t.test('halves of surrogate pairs from a client are rejected', async t => {
  t.match(faultOf({ a: ['\ud83e'] }, LIMITS), { pointer: '/a/0', message: /half of a surrogate pair/ });
  t.match(faultOf('\ud83e', LIMITS), { pointer: '' });
  t.equal(faultOf({ a: ['🧊'] }, LIMITS), undefined);
});

t.test('cycles, functions and bigints are rejected', async t => {
  const circle: { self?: unknown } = {};
  circle.self = circle;
  t.match(faultOf(circle, LIMITS)?.message, /64 levels/);
  t.match(faultOf({ f: () => 1 }, LIMITS), { pointer: '/f', message: 'is function, not JSON' });
  t.match(faultOf([1n], LIMITS), { pointer: '/0', message: 'is bigint, not JSON' });
  t.match(faultOf({ u: undefined }, LIMITS), { pointer: '/u' });
});
