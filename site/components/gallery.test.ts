import { readFileSync } from 'node:fs';
import t from 'tap';
import { accessibilityProblems, openPlayground, overflow, skip } from '../playground/browser.test-data.ts';

t.setTimeout(600_000);

const WIDTHS = [390, 768, 1280, 1920];

t.test('every component is accessible and fits, in both themes and four widths', { skip }, async t => {
  const { page } = await openPlayground(t, 'site/components');
  await page.getByRole('heading', { level: 1, name: 'Components' }).waitFor();
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      t.equal(await overflow(page), 0, `${colorScheme}, ${width} px: no scrolling sideways`);
      t.same(await accessibilityProblems(page), [], `${colorScheme}, ${width} px: accessible`);
    }
  }
  const font = await page.locator('textarea.code').evaluate(element => getComputedStyle(element).fontFamily);
  t.match(font, /^"JetBrains Mono"/, 'code is typed in the face of code');
  await page.locator('summary', { hasText: 'A menu' }).click();
  t.same(await accessibilityProblems(page), [], 'with the menu open');
});

t.test('the gallery shows every class of the sheets that all pages share', { skip }, async t => {
  const { page } = await openPlayground(t, 'site/components');
  await page.getByRole('heading', { level: 1, name: 'Components' }).waitFor();
  const shown = new Set(
    await page.evaluate(() =>
      Array.from(document.querySelectorAll('[class]')).flatMap(element => Array.from(element.classList)),
    ),
  );
  const sheets = ['../styles/elements.css', '../styles/layout.css', './components.css'];
  const named = sheets.flatMap(sheet =>
    [...readFileSync(new URL(sheet, import.meta.url), 'utf8').matchAll(/\.([a-z][\w-]*)(?=[^{};]*\{)/g)].map(
      ([, name]) => name,
    ),
  );
  t.ok(named.length > 50);
  t.same(
    [...new Set(named)].filter(name => !shown.has(name)),
    [],
  );
});
