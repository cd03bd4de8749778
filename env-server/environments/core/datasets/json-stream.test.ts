import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Json } from '../../../../shared/json.ts';
import { Random } from '../../../../shared/random.ts';
import { jsonParts, textLines } from './json-stream.ts';

/** Longer than a chunk of a file. */
const LONG = 200_000;

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

t.test('lines end at line feeds only', async t => {
  const file = join(t.testdir(), 'a.txt');
  const lines = ['a\u2028b\u2029c\rd', '', 'é'.repeat(LONG), 'last\r'];
  writeFileSync(file, `\uFEFF${lines.join('\n')}`);
  t.same(await all(textLines(file)), lines);
  writeFileSync(file, 'one\n');
  t.same(await all(textLines(file)), ['one', '']);
});

/** Something with brackets, quotation marks and other troubles in its strings. */
function anyJson(rng: Random, depth: number): Json {
  if (depth === 0 || rng.chance(0.4)) {
    return rng.choice<Json>([null, true, -1.5e3, '', '[', '}"\\', 'é\u2028,', '\\', 'x'.repeat(50)]);
  }
  const items = Array.from({ length: rng.integer(4) }, () => anyJson(rng, depth - 1));
  if (rng.chance(0.5)) return items;
  return Object.fromEntries(items.map((item, index) => [`${index}"{,`, item]));
}

t.test('the elements of an array and of an object are what JSON.parse gives', async t => {
  const file = join(t.testdir(), 'a.json');
  const rng = Random.fromSeed(1);
  for (let round = 0; round < 60; round++) {
    const items = Array.from({ length: rng.integer(30) }, () => anyJson(rng, 4));
    const indent = rng.choice([undefined, 2]);
    writeFileSync(file, `${rng.choice(['', '\uFEFF', ' \n'])}${JSON.stringify(items, null, indent)}\n`);
    const elements = await all(jsonParts(file));
    t.same(
      elements.map(({ text }) => JSON.parse(text)),
      items,
    );
    t.ok(elements.every(({ of }) => of === 'array'));
    const object = Object.fromEntries(items.map((item, index) => [`key "${index}`, item]));
    writeFileSync(file, JSON.stringify(object, null, indent));
    const entries = await all(jsonParts(file));
    t.same(Object.assign({}, ...entries.map(({ text }) => JSON.parse(`{${text}}`))), object);
    t.ok(entries.every(({ of }) => of === 'object'));
  }
});

t.test('an element may be longer than a chunk', async t => {
  const file = join(t.testdir(), 'a.json');
  const items = ['é'.repeat(LONG), ['"\\'.repeat(LONG)], 3];
  writeFileSync(file, JSON.stringify(items));
  t.same(
    (await all(jsonParts(file))).map(({ text }) => JSON.parse(text)),
    items,
  );
});

t.test('input that is not an array or object is refused', async t => {
  const file = join(t.testdir(), 'a.json');
  for (const [content, message] of [
    ['', /not an array or object/],
    ['"[]"', /not an array or object/],
    ['x[]', /not an array or object/],
    [']', /not an array or object/],
    ['[1, {"a": 2}', /ends early/],
    ['["a]', /ends early/],
    ['[1]]', /continues after/],
    ['[1] [2]', /continues after/],
    ['{"a":1}\n{"a":2}', /continues after/],
    ['[1}', /array of the file does not end as one/],
  ] as const) {
    writeFileSync(file, content);
    await t.rejects(all(jsonParts(file)), { name: 'NotJson', message }, content);
  }
});
