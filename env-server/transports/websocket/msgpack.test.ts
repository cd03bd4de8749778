import { encode } from '@msgpack/msgpack';
import t from 'tap';
import { decodeMsgpack, encodeMsgpack } from './protocol.ts';

t.test('values that JSON has go through as they are', async t => {
  const long = Array.from({ length: 70_000 }, (_, i) => i);
  const wide = Object.fromEntries(long.slice(0, 20).map(i => [`key ${i}`, i]));
  for (const value of [
    null,
    true,
    [0, 127, 128, 255, 256, 65_535, 65_536, 2 ** 32, Number.MAX_SAFE_INTEGER],
    [-1, -32, -33, -128, -129, -32_769, -(2 ** 31), Number.MIN_SAFE_INTEGER],
    [0.5, -1e300],
    ['', 'é'.repeat(20), 'x'.repeat(300), '🧊'.repeat(20_000)],
    { op: 'step', action: { up: [1, [2, {}]] } },
    wide,
    Object.fromEntries(long.map(i => [`key ${i}`, i])),
    [[], {}, [[]]],
    long,
  ]) {
    t.same(decodeMsgpack(encodeMsgpack(value)), value);
  }
  t.same(
    decodeMsgpack(encodeMsgpack({ a: undefined, b: 1 })),
    { b: 1 },
    'as JSON leaves out what is undefined',
  );
});

t.test('everything else is refused with its reason', async t => {
  const deep = (levels: number) => {
    let value: unknown = 1;
    for (let level = 0; level < levels; level++) value = [value];
    return encode(value, { maxDepth: 1000 });
  };
  t.ok(decodeMsgpack(deep(100)));
  const cases: [Uint8Array, RegExp][] = [
    [encode(new Uint8Array(3)), /binary data or an extension/],
    [encode(new Date(0)), /binary data or an extension/],
    [Uint8Array.of(0xc1), /binary data or an extension/],
    [encode(Number.NaN), /finite, got NaN/],
    [encode([Number.POSITIVE_INFINITY]), /finite, got Infinity/],
    [Uint8Array.of(), /ends within a value, after 0 bytes/],
    [encode('x'.repeat(100)).subarray(0, 50), /ends within a value, after 50 bytes/],
    [encode(1e300).subarray(0, 4), /ends within a value/],
    [Uint8Array.of(1, 2), /it has 1 byte after its value/],
    [deep(101), /more than 100 levels/],
    [Uint8Array.of(0x81, 0x01, 0x02), /not MessagePack of a JSON value/],
    [Uint8Array.of(0x81, 0xa9, ...Buffer.from('__proto__'), 0x80), /__proto__/],
  ];
  for (const [bytes, reason] of cases) {
    t.throws(() => decodeMsgpack(bytes), { code: 'bad_json', message: reason });
  }
});

t.test('a few bytes that announce gigabytes allocate nothing', async t => {
  const array32 = [0xdd, 0xff, 0xff, 0xff, 0xff];
  t.throws(() => decodeMsgpack(Uint8Array.from(array32)), { code: 'bad_json' });
  t.throws(() => decodeMsgpack(Uint8Array.from([0xdf, 0xff, 0xff, 0xff, 0xff])), { code: 'bad_json' });
  const nested = Uint8Array.from({ length: 3000 }, (_, i) => [0xdc, 0x03, 0xe8][i % 3]);
  t.throws(() => decodeMsgpack(nested), { code: 'bad_json', message: /ends within a value/ });
});

t.test('a message of very many values is refused before it is decoded', async t => {
  const count = 400_000;
  const bytes = new Uint8Array(5 + count).fill(0x90);
  bytes.set([0xdd, 0, count >> 16, (count >> 8) & 0xff, count & 0xff]);
  t.throws(() => decodeMsgpack(bytes), { code: 'bad_json', message: /more than 200000 values/ });
});
