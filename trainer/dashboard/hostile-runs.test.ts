import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { skip } from '../../site/playground/browser.test-data.ts';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';
import { openPage, serveDashboard } from './dashboard.test-data.ts';

/** Markup that would run a script where a page took it for its own. */
const MARKUP = '"><img src=x onerror="owned=1"><svg onload="owned=1"><script>owned=1</script>';
/** Texts with a meaning, without which a page shows nothing. */
const IS_KEPT = /^(?:running|finished|stopped|failed|done|\d{4}-\d\d-\d\dT.*)$/;

/** Elements that a page has once its data has come. */
const SHOWN = 'main h2, main table, main .token';

/** Every other text of a value with markup behind it, and each metric once more under such a name. */
function marked(value: unknown): unknown {
  if (typeof value === 'string') return IS_KEPT.test(value) ? value : value + MARKUP;
  if (Array.isArray(value)) return value.map(item => marked(item));
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).flatMap(([name, member]) => {
    const own = [name, marked(member)] as const;
    return name.includes('/') ? [own, [name + MARKUP, member] as const] : [own];
  });
  return Object.fromEntries(entries);
}

function markFile(path: string): void {
  const lines = readFileSync(path, 'utf8').split('\n').filter(Boolean);
  writeFileSync(path, lines.map(line => `${JSON.stringify(marked(JSON.parse(line)))}\n`).join(''));
}

t.test('no text of a run is markup on the pages that show it', { skip, timeout: 600_000 }, async t => {
  const runs = t.testdir();
  const folder = writeSampleRun(runs, 'lake-1');
  for (const name of readdirSync(folder)) if (/\.jsonl?$/.test(name)) markFile(join(folder, name));
  const trajectories = join(folder, 'trajectories');
  for (const name of readdirSync(trajectories)) markFile(join(trajectories, name));
  const words = { tags: ['<b>'], note: MARKUP, archived: false };
  writeFileSync(join(folder, 'annotations.json'), JSON.stringify(words));
  const origin = await serveDashboard(t, { runs });
  const page = await openPage(t, `${origin}/runs/`);
  for (const path of [
    '',
    '#/run/lake-1',
    '#/run/lake-1/episodes',
    '#/run/lake-1/episode?file=train-000030&index=1',
    '#/compare?runs=lake-1',
  ]) {
    await page.goto(`${origin}/runs/${path}`);
    await page.locator(SHOWN).first().waitFor();
    const shown = await page.evaluate(() => ({
      owned: 'owned' in window,
      elements: document.querySelectorAll('img[src="x"], svg[onload], main script').length,
    }));
    t.strictSame(shown, { owned: false, elements: 0 }, `/runs/${path}`);
  }
  await page.goto(`${origin}/runs/#/run/lake-1/episode?file=train-000030&index=1`);
  await page.getByText('onerror="owned=1"').first().waitFor();
});
