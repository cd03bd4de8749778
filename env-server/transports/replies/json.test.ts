import t from 'tap';
import { parseJson } from './json.ts';

t.test('JSON is read, anything else refused with the place', async t => {
  t.same(parseJson('{"a":[1,"__prot__","\\u005fx"]}'), { a: [1, '__prot__', '_x'] });
  t.throws(() => parseJson('{"a":'), { code: 'bad_json' });
  t.throws(() => parseJson(''), { code: 'bad_json' });
});

t.test('the key __proto__ is refused, however deep and however written', async t => {
  t.throws(() => parseJson('{"a":[{"__proto__":{}}]}'), { code: 'bad_json', message: /__proto__/ });
  t.throws(() => parseJson('{"\\u005f_proto__":1}'), { code: 'bad_json' });
  t.throws(() => parseJson('{"\\u005F_proto_\\u005f":1}'), { code: 'bad_json' });
  t.same(parseJson('{"a":"__proto__"}'), { a: '__proto__' });
});
