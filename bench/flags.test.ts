import { globSync, readFileSync } from 'node:fs';
import t from 'tap';

/** Scripts with their first comment as `--help`. */
const SCRIPTS = globSync('bench/*.ts')
  .map(script => ({ script, source: readFileSync(script, 'utf8') }))
  .filter(({ source }) => /= scriptFlags\(import/.test(source));

t.test('the comment that a benchmark begins with names all of its flags', async t => {
  t.ok(SCRIPTS.length > 10);
  for (const { script, source } of SCRIPTS) {
    const comment = /^\/\*\*\n.*?\n \*\//s.exec(source)?.[0] ?? '';
    const [, flags = ''] = /scriptFlags\(import\.meta\.filename, (.*?)\);\n/s.exec(source) ?? [];
    const names = [...flags.matchAll(/'?([a-z][a-z-]*)'?: \{ type: '/g)].map(([, name]) => name);
    t.ok(names.length > 0, `${script} has flags`);
    t.same(
      names.filter(name => !comment.includes(`--${name}`)),
      [],
      `${script} says nothing of these`,
    );
  }
});
