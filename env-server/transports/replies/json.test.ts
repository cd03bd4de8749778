import t from 'tap';
import { MAX_DEFINITION_PARTS, MAX_PARTS, parseJson } from './content.ts';

t.test('JSON is read, anything else refused with the place', async t => {
  t.same(parseJson('{"a":[1,"__prot__","\\u005fx"]}'), { a: [1, '__prot__', '_x'] });
  t.throws(() => parseJson('{"a":'), { code: 'bad_json' });
  t.throws(() => parseJson(''), { code: 'bad_json' });
});

t.test('the key __proto__ is refused, however deep and however written', async t => {
  t.throws(() => parseJson('{"a":[{"__proto__":{}}]}'), { code: 'bad_json', message: /__proto__/ });
  t.throws(() => parseJson('{"\\u005f_proto__":1}'), { code: 'bad_json' });
  t.throws(() => parseJson('{"\\u005F_proto_\\u005f":1}'), { code: 'bad_json' });
  t.throws(() => parseJson('{"a":[0,{"b":{"__\\u0070roto__":1}}]}'), { code: 'bad_json' });
  t.same(parseJson('{"a":"__proto__"}'), { a: '__proto__' });
});

t.test('a text that would take too long to read is refused before it is read', async t => {
  const refused = { code: 'body_too_large', message: /may have 100000 lists, objects and keys/ };
  t.throws(() => parseJson(`[${'0,'.repeat(2 * MAX_PARTS)}0]`), refused);
  const tables = `[${'[],'.repeat(MAX_PARTS)}0]`;
  t.equal((parseJson(tables, MAX_DEFINITION_PARTS) as unknown[]).length, MAX_PARTS + 1);
  t.throws(() => parseJson(`[${'[],'.repeat(MAX_PARTS)}0]`), refused);
  t.throws(() => parseJson(`{${'"a":0,'.repeat(MAX_PARTS)}"b":0}`), refused);
  t.throws(() => parseJson('['.repeat(MAX_PARTS + 1)), refused);
  const long = { text: `"\\\\"[{:`.repeat(MAX_PARTS), numbers: new Array(MAX_PARTS).fill(1) };
  t.same(parseJson(JSON.stringify(long)), long, 'what is long counts only by its parts');
  t.throws(() => parseJson(`"${'['.repeat(2 * MAX_PARTS)}`), { code: 'bad_json' });
});
