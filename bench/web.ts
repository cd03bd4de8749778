/**
 * What the pages about runs take in a browser: `npm run bench:web [-- --runs 10000 --rows 100000 --long-rows 1000000]`, the
 * median of `--rounds 5`. Needs chromium (`--chromium /usr/bin/chromium`). The computing time of the page's main thread is
 * measured too, which other work on the machine hardly changes.
 */
import { appendFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { writeSampleRun } from '../site/server/sample-runs.test-data.ts';
import { createDashboard } from '../trainer/dashboard/server.ts';
import { scriptFlags } from './flags.ts';
import {
  type Cost,
  inNewPage,
  type MeasuredPage,
  scrolled,
  shown,
  untilPainted,
  untilPaintedAfter,
} from './web/page-measurements.ts';
import { writeLongRun, writeManyRuns } from './web/sample-folders.ts';

const { values } = scriptFlags(import.meta.filename, {
  options: {
    runs: { type: 'string', default: '10000' },
    rows: { type: 'string', default: '100000' },
    'long-rows': { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '5' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});
const ROUNDS = Number(values.rounds);
const EPISODE = { turns: 200, tokens: 50_000 };
const ROW = '.run-table tbody a';
const CHART = '.small-charts canvas';

const folder = mkdtempSync(join(tmpdir(), 'ragen-bench-web-'));
const browser = await chromium.launch({ executablePath: values.chromium, args: ['--no-sandbox'] });

async function repeated(work: (measured: MeasuredPage) => Promise<Cost>): Promise<Cost[]> {
  const costs: Cost[] = [];
  for (let round = 0; round < ROUNDS; round++) costs.push(await inNewPage(browser, work));
  return costs;
}

async function open(name: string) {
  const root = join(folder, name);
  mkdirSync(root);
  const app = await createDashboard({ runs: root, host: '127.0.0.1', allowedHosts: '' });
  return { root, app, origin: await app.listen({ host: '127.0.0.1', port: 0 }) };
}

/** The table: reloaded, scrolled, searched. */
async function manyRuns(count: number): Promise<void> {
  const { root, app, origin } = await open('many');
  writeManyRuns(root, count);
  const first = await inNewPage(browser, page => untilPainted(page, `${origin}/runs/`, ROW));
  console.log(`Runs with ${count} runs, first rows painted: ${shown([first])} when nothing is known yet`);
  console.log(`  later: ${shown(await repeated(page => untilPainted(page, `${origin}/runs/`, ROW)))}`);
  const frames = await inNewPage(browser, async measured => {
    await untilPainted(measured, `${origin}/runs/`, ROW);
    return scrolled(measured);
  });
  console.log(`  scrolls at ${framesOf(frames)}`);
  await app.close();
}

/** A long curve: opened from the table, and reloaded. */
async function longCurve(rows: number, name: string): Promise<void> {
  const { root, app, origin } = await open(name);
  writeLongRun(root, 'curve', rows);
  const first = await inNewPage(browser, page => untilPainted(page, `${origin}/runs/#/run/curve`, CHART));
  console.log(`Run with ${rows} rows, loaded when nothing is known yet: ${shown([first])}`);
  const loaded = await repeated(page => untilPainted(page, `${origin}/runs/#/run/curve`, CHART));
  console.log(`  later: ${shown(loaded)}`);
  const clicked = await repeated(async measured => {
    // The scripts of a run's pages are there; the curve is read and drawn again.
    await untilPainted(measured, `${origin}/runs/#/run/curve`, CHART);
    await untilPaintedAfter(measured, '#/', ROW);
    return untilPaintedAfter(measured, '#/run/curve', CHART);
  });
  console.log(`  its curves, clicked in the table: ${shown(clicked)}`);
  await app.close();
}

async function longEpisode(): Promise<void> {
  const { root, app, origin } = await open('episodes');
  writeSampleRun(root, 'episode', { ...EPISODE, steps: 10, groups: 1 });
  const url = `${origin}/runs/#/run/episode/episode?file=train-000010&index=0`;
  const { turns, tokens } = EPISODE;
  await inNewPage(browser, async measured => {
    const painted = await untilPainted(measured, url, `.turn-strip .turn-cell:nth-child(${turns})`);
    console.log(`Episode of ${turns} turns and ${tokens} tokens painted: ${shown([painted])}`);
    console.log(`  scrolls at ${framesOf(await scrolled(measured))}`);
  });
  await app.close();
}

function framesOf({ fps, longest, cpuMs }: Awaited<ReturnType<typeof scrolled>>): string {
  return `${fps.toFixed(1)} frames/s, longest frame ${longest.toFixed(0)} ms; the page computes ${cpuMs.toFixed(1)} ms for each`;
}

/** From writing a row of metrics until the page shows it. */
async function liveDelay(): Promise<void> {
  const { root, app, origin } = await open('live');
  const file = join(writeSampleRun(root, 'live', { steps: 5 }), 'metrics.jsonl');
  await inNewPage(browser, async ({ page, cpuMs }) => {
    await page.goto(`${origin}/runs/#/run/live`);
    await page.locator('.plot[aria-label]').first().waitFor();
    const costs: Cost[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const value = 100 + round;
      const [began, computed] = [performance.now(), await cpuMs()];
      appendFileSync(file, `{"step":${value},"train/return":${value}}\n`);
      await page.locator(`.plot[aria-label*=" to ${value} at step ${value}"]`).first().waitFor();
      costs.push({ ms: performance.now() - began, cpuMs: (await cpuMs()) - computed });
    }
    console.log(`Metrics appear after they were written: ${shown(costs)}`);
  });
  await app.close();
}

const load = () => `${loadavg()[0].toFixed(1)} processes on ${availableParallelism()} cores`;

try {
  console.log(`Load: ${load()}`);
  await manyRuns(Number(values.runs));
  await longCurve(Number(values.rows), 'curve');
  await longCurve(Number(values['long-rows']), 'long');
  await longEpisode();
  await liveDelay();
  console.log(`Load: ${load()}`);
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
