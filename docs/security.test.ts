import { existsSync, readFileSync } from 'node:fs';
import t from 'tap';

const ROOT = new URL('../', import.meta.url);
/** The page with each item of its lists on one line. */
const page = readFileSync(new URL('docs/reference/security.md', ROOT), 'utf8').replaceAll('\n  ', ' ');
const ROW = /^- .+ `([^`]+\.test\.ts)`: (.+)$/gm;

t.test('every threat names a test that is there', async t => {
  const tests = [...page.matchAll(ROW)];
  const lines = page.split('\n').filter(line => line.includes('.test.ts'));
  t.ok(tests.length > 50);
  t.equal(tests.length, lines.length, 'lines have the form threat, `file`: name');
  for (const [, file, name] of tests) {
    const url = new URL(file, ROOT);
    if (!existsSync(url)) t.fail(`there is no ${file}`);
    else t.ok(readFileSync(url, 'utf8').includes(name), `${file}: ${name}`);
  }
});
