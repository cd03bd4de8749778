/**
 * Pictures of the pages about runs and one of them, for docs/pictures:
 * `node docs/generator/dashboard-pictures.ts runs quickstart-001 docs/pictures`. Needs chromium.
 */
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';
import { createDashboard } from '../../trainer/dashboard/server.ts';

const [runs = 'runs', run = 'quickstart-001', folder = 'docs/pictures'] = process.argv.slice(2);
const LARGEST_WAIT_MS = 60_000;

/** A view, what is there when it is ready, and how it is looked at. */
const PICTURES = [
  {
    name: 'runs-table',
    hash: undefined,
    ready: '.run-table .success-cell',
    colorScheme: 'light',
    height: 560,
  },
  { name: 'runs-overview', hash: '', ready: '.small-charts canvas', colorScheme: 'light', height: 1060 },
  { name: 'runs-replay', hash: '/replay', ready: '.frame .board', colorScheme: 'dark', height: 760 },
  { name: 'runs-episodes', hash: '/episodes', ready: '.member', colorScheme: 'light', height: 820 },
] as const;

const app = await createDashboard({ runs: resolve(runs), host: '127.0.0.1', allowedHosts: '' });
const origin = await app.listen({ host: '127.0.0.1', port: 0 });
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
for (const { name, hash, ready, colorScheme, height } of PICTURES) {
  const context = await browser.newContext({
    viewport: { width: 1280, height },
    colorScheme,
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  const view = hash === undefined ? '#/' : `#/run/${encodeURIComponent(run)}${hash}`;
  await page.goto(`${origin}/runs/${view}`);
  // A page that cannot wait shows the system's faces: now its own are in the cache.
  await page.reload();
  await page.locator(ready).first().waitFor({ timeout: LARGEST_WAIT_MS });
  await page.waitForTimeout(500);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
}
await browser.close();
await app.close();
