/**
 * What the pages about runs take in a browser: `npm run bench:web [-- --runs 10000 --rows 100000 --long-rows 1000000]`, the
 * median of `--rounds 5`. Needs chromium (`--chromium /usr/bin/chromium`). The computing time of the page's main thread is
 * measured too, which other work on the machine hardly changes.
 */
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, type CDPSession, chromium, type Page } from 'playwright-core';
import { writeSampleRun } from '../site/server/sample-runs.test-data.ts';
import { createDashboard } from '../trainer/dashboard/server.ts';
import { scriptFlags } from './flags.ts';
import { median } from './measuring.ts';

/** Writes a run with `rows` rows of metrics. */
export function writeLongRun(root: string, id: string, rows: number): void {
  const run = writeSampleRun(root, id, { steps: 0 });
  const lines = Array.from({ length: rows }, (_, step) => {
    const value = Math.sin(step / 1000) + ((step * 7919) % 1000) / 1000;
    return `{"step":${step},"time":"2026-01-01T00:00:00.000Z","train/return":${value.toFixed(4)},"actor/entropy":1.5}\n`;
  });
  writeFileSync(join(run, 'metrics.jsonl'), lines.join(''));
}

/** Writes the status files of many finished runs. */
export function writeManyRuns(root: string, count: number): void {
  for (let i = 0; i < count; i++) {
    const run = join(root, `run-${String(i).padStart(5, '0')}`);
    mkdirSync(run, { recursive: true });
    const validations = Array.from({ length: 20 }, (_, n) => ({
      step: 10 * n,
      success: ((i + n) % 20) / 20,
    }));
    const tags = [{ tag: 'Lake', env_id: 'FrozenLake-v0', config: {}, random: 0.25, optimum: 0.94 }];
    writeFileSync(
      join(run, 'status.json'),
      JSON.stringify({
        format: 1,
        state: 'finished',
        stage: 'done',
        step: 200,
        steps: 200,
        eta_s: null,
        pid: 1,
        host: 'x',
        seconds: 600,
        started_at: '2026-01-01T00:00:00.000Z',
        updated_at: '2026-01-01T00:10:00.000Z',
        notes: [],
        last_error: null,
        validations,
        run: {
          name: `run-${i}`,
          recipe: ['grpo'],
          advantage: 'grpo',
          seed: i,
          model: 'scratch',
          parameters: 1e5,
          tags,
        },
      }),
    );
  }
}

const SCROLLED_FRAMES = 180;
const PIXELS_PER_FRAME = 60;
/** Longest time of a busy machine for one page. */
const PATIENCE_MS = 120_000;

/** Duration, and computing time of the page's main thread; only the latter is the same on a busy machine. */
export interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
}

/** A page with the clock of its main thread. */
export interface MeasuredPage {
  readonly page: Page;
  /** Milliseconds that the main thread has computed. */
  cpuMs(): Promise<number>;
}

export async function inNewPage<T>(
  browser: Browser,
  work: (measured: MeasuredPage) => Promise<T>,
): Promise<T> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(PATIENCE_MS);
  try {
    const page = await context.newPage();
    const session = await context.newCDPSession(page);
    await session.send('Performance.enable', { timeDomain: 'threadTicks' });
    return await work({ page, cpuMs: () => cpuMsOf(session) });
  } finally {
    await context.close();
  }
}

async function cpuMsOf(session: CDPSession): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics');
  return 1000 * metrics.find(({ name }) => name === 'TaskDuration')!.value;
}

/** From the start of loading a page until an element has been painted. */
export async function untilPainted(
  { page, cpuMs }: MeasuredPage,
  url: string,
  selector: string,
): Promise<Cost> {
  await page.addInitScript(wanted => {
    const look = () => {
      if (document.querySelector(wanted)) {
        requestAnimationFrame(() => setTimeout(() => Object.assign(window, { painted: performance.now() })));
      } else requestAnimationFrame(look);
    };
    look();
  }, selector);
  const before = await cpuMs();
  await page.goto(url);
  await page.waitForFunction(() => 'painted' in window);
  const ms = await page.evaluate(() => (window as unknown as { painted: number }).painted);
  return { ms, cpuMs: (await cpuMs()) - before };
}

/** From a click on a link within the site until an element has been painted: data asked for, read and drawn. */
export async function untilPaintedAfter(
  { page, cpuMs }: MeasuredPage,
  hash: string,
  selector: string,
): Promise<Cost> {
  const before = await cpuMs();
  const ms = await page.evaluate(
    ([to, wanted]) =>
      new Promise<number>(done => {
        const began = performance.now();
        const look = () => {
          if (!document.querySelector(wanted)) return requestAnimationFrame(look);
          return requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
        };
        location.hash = to;
        look();
      }),
    [hash, selector],
  );
  return { ms, cpuMs: (await cpuMs()) - before };
}

/** Frames per second, the longest frame in ms, and the computing time of the main thread for one, while a page scrolls. */
export async function scrolled({ page, cpuMs }: MeasuredPage) {
  const before = await cpuMs();
  const frames = await page.evaluate(
    ([count, pixels]) =>
      new Promise<{ readonly fps: number; readonly longest: number }>(done => {
        const times: number[] = [];
        const step = (now: number) => {
          times.push(now);
          scrollBy(0, pixels);
          if (times.length <= count) return requestAnimationFrame(step);
          const gaps = times.slice(1).map((time, i) => time - times[i]);
          done({ fps: (1000 * gaps.length) / (times.at(-1)! - times[0]), longest: Math.max(...gaps) });
        };
        requestAnimationFrame(step);
      }),
    [SCROLLED_FRAMES, PIXELS_PER_FRAME],
  );
  return { ...frames, cpuMs: ((await cpuMs()) - before) / SCROLLED_FRAMES };
}

/** Costs of several rounds in words. */
export function shown(costs: readonly Cost[]): string {
  const times = costs.map(({ ms }) => ms);
  const computed = median(costs.map(({ cpuMs }) => cpuMs));
  const first = `${Math.round(median(times))} ms`;
  const rest =
    costs.length === 1 ? '' : ` (median of ${costs.length}, worst ${Math.round(Math.max(...times))} ms)`;
  return `${first}${rest}, of which the page computes ${Math.round(computed)} ms`;
}

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
