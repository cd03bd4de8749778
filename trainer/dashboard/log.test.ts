import { appendFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { accessibilityProblems, overflow, skip } from '../../site/playground/browser.test-data.ts';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';
import { openPage, serveDashboard, serveFiles } from './dashboard.test-data.ts';
import { exportSite } from './export.ts';

t.setTimeout(300_000);

const HOSTILE = `\x1b[2J\u202e<img src=x onerror="document.title='bad'"> ${'x'.repeat(900)}`;
const line = (text: string) => `${new Date().toISOString()} ${text}\n`;

t.test('the log of a run follows its end until the reader scrolls up', { skip }, async t => {
  const root = t.testdir();
  const updated_at = new Date().toISOString();
  const folder = writeSampleRun(root, 'live', { status: { state: 'running', pid: process.pid, updated_at } });
  const file = join(folder, 'log.txt');
  rmSync(file);
  const say = (text: string) => appendFileSync(file, line(text));
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/run/live/log`, { viewport: { width: 390, height: 844 } });
  await page.getByText('No line yet').waitFor();
  for (let i = 1; i <= 100; i++) say(`step ${i}`);
  const box = page.getByRole('region', { name: 'Last lines of the log' });
  const fromEnd = () =>
    box.evaluate(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight);
  await box.getByText(/^\S+ step 100$/).waitFor();
  t.ok((await fromEnd()) < 2, 'the last line is in view');
  say(HOSTILE);
  await box.getByText('\\u001b[2J\\u202e<img src=x').waitFor();
  t.ok((await fromEnd()) < 2, 'and the next one');
  t.equal(await box.locator('img').count(), 0);
  t.ok((await overflow(page)) <= 0, 'long lines wrap');
  t.ok(await box.evaluate(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth));
  const toEnd = page.getByRole('button', { name: 'Go to the end' });
  t.equal(await toEnd.count(), 0);
  await box.evaluate(element => element.scrollTo(0, 40));
  await toEnd.waitFor();
  say('not followed');
  await box.getByText('not followed').waitFor({ state: 'attached' });
  t.equal(await box.evaluate(({ scrollTop }) => scrollTop), 40, 'a reader stays in place');
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    t.same(await accessibilityProblems(page), [], colorScheme);
  }
  await toEnd.click();
  await toEnd.waitFor({ state: 'detached' });
  say('followed');
  await box.getByText(/^\S+ followed$/).waitFor();
  t.ok((await fromEnd()) < 2);
});

t.test('an export has the last 200 lines of each log', { skip }, async t => {
  const root = t.testdir({ runs: {} });
  const folder = writeSampleRun(join(root, 'runs'), 'a', { steps: 2 });
  writeFileSync(join(folder, 'log.txt'), Array.from({ length: 300 }, (_, i) => line(`line ${i}`)).join(''));
  await exportSite(join(root, 'runs'), join(root, 'site'));
  const page = await openPage(t, `${await serveFiles(t, join(root, 'site'))}/#/run/a/log`);
  const lines = page.getByRole('region', { name: 'Last lines of the log' }).locator('time');
  await page.getByText('line 299').waitFor();
  t.equal(await lines.count(), 200);
});
