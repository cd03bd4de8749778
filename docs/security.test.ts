import { existsSync, readFileSync } from 'node:fs';
import t from 'tap';

const ROOT = new URL('../', import.meta.url);
/** The page with each item of its lists on one line. */
const page = readFileSync(new URL('docs/reference/security.md', ROOT), 'utf8').replaceAll('\n  ', ' ');
/** A file of tests and the list of its tests below. */
const FILE = /^`([^`]+\.test\.ts)`\n\n((?:- .+\n)+)/gm;
/** A remark of the page after the name of a test. */
const REMARK = / \((?:against|of|for) [^)]+\)$/;

t.test('every test that the page of threats names exists', async t => {
  const files = [...page.matchAll(FILE)];
  t.equal(
    files.length,
    page.split('\n').filter(line => line.includes('.test.ts')).length,
    'each file has a list',
  );
  let tests = 0;
  for (const [, file, list] of files) {
    const url = new URL(file, ROOT);
    if (!existsSync(url)) {
      t.fail(`there is no ${file}`);
      continue;
    }
    const source = readFileSync(url, 'utf8');
    for (const line of list.trimEnd().split('\n')) {
      const name = line.slice('- '.length).replaceAll('`', '').replace(REMARK, '');
      t.ok(source.includes(name), `${file}: ${name}`);
      tests++;
    }
  }
  t.ok(tests > 100);
});
