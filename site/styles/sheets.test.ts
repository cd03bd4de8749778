import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const SITE = join(import.meta.dirname, '..');
/** Lines of all sheets of the site; a sheet that needs more takes them from another. */
const MAX_LINES = 1500;

const read = (pattern: string) =>
  globSync(pattern, { cwd: SITE })
    .filter(path => !path.includes('.test'))
    .map(path => readFileSync(join(SITE, path), 'utf8'));

t.test('the sheets of the site stay below their ceiling', t => {
  const lines = read('**/*.css').reduce((sum, sheet) => sum + sheet.split('\n').length - 1, 0);
  t.ok(lines <= MAX_LINES, `${lines} lines, ceiling ${MAX_LINES}`);
  t.end();
});

t.test('every class and id that a sheet names is in the markup of a page', t => {
  const source = read('**/*.{ts,html}').join('\n');
  const words = new Set(source.match(/[\w-]+/g));
  const named = read('**/*.css').flatMap(sheet =>
    [...sheet.replaceAll(/\/\*[^*]*\*\//g, '').matchAll(/[.#]([a-z][\w-]*)(?=[^{};]*\{)/g)].map(
      ([, name]) => name,
    ),
  );
  t.ok(named.length > 150);
  const elsewhere = (name: string) => name.startsWith('u-') || name.startsWith('column-');
  t.same(
    [...new Set(named)].filter(name => !words.has(name) && !elsewhere(name)),
    [],
    'but for those of uPlot, and columns by their ids',
  );
  t.end();
});
