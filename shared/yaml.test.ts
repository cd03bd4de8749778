import t from 'tap';
import { parseYaml } from './yaml.ts';

/** Milliseconds of processor time. */
function cost(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

t.test('a map of many keys costs no more than as many maps', t => {
  const keys = Array.from({ length: 10_000 }, (_, i) => `k${i}: 1\n`);
  const list = keys.map(line => `- ${line}`).join('');
  const plain = cost(() => parseYaml(list));
  const map = cost(() => parseYaml(keys.join('')));
  t.ok(map < 4 * plain, `${map} ms for a map, ${plain} ms for a list`);
  t.end();
});

t.test('the last of equal keys counts', t => {
  t.strictSame(parseYaml('{a: 1, b: 2, a: 3}'), { a: 3, b: 2 });
  t.end();
});

t.test('aliases are errors, and unknown tags fill no log', t => {
  t.throws(() => parseYaml('a: &a [x]\nb: [*a, *a]\n'), /Alias/);
  const { emitWarning } = process;
  t.teardown(() => {
    process.emitWarning = emitWarning;
  });
  process.emitWarning = () => t.fail('a warning');
  t.strictSame(parseYaml('- !x a\n- !y b\n'), ['a', 'b']);
  t.end();
});

t.test('a key with a meaning in JavaScript is a key', t => {
  const value = parseYaml('{__proto__: {polluted: 1}}') as object;
  t.ok(Object.hasOwn(value, '__proto__'));
  t.notOk('polluted' in value);
  t.end();
});
