/**
 * What the pages about runs take in a browser: `npm run bench:web [-- --runs 10000 --rows 100000 --long-rows 1000000]`.
 * Needs chromium.
 */
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright-core';
import { writeSampleRun } from '../shared/dashboard/sample-runs.test-data.ts';
import { createDashboard } from '../trainer/dashboard/server.ts';
import { median } from './median.ts';

const { values } = parseArgs({
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
const SCROLLED_FRAMES = 180;
const PATIENCE_MS = 120_000;

const folder = mkdtempSync(join(tmpdir(), 'ragen-bench-web-'));

/** Writes a run whose metrics have so many rows. */
function writeLongRun(root: string, id: string, rows: number): void {
  const run = writeSampleRun(root, id, { steps: 0 });
  const lines = Array.from({ length: rows }, (_, step) => {
    const value = Math.sin(step / 1000) + ((step * 7919) % 1000) / 1000;
    return `{"step":${step},"time":"2026-01-01T00:00:00.000Z","train/return":${value.toFixed(4)},"actor/entropy":1.5}\n`;
  });
  writeFileSync(join(run, 'metrics.jsonl'), lines.join(''));
}

function writeManyRuns(root: string, count: number): void {
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

/** Milliseconds from the start of loading a page until an element has been painted. */
async function untilPainted(page: Page, url: string, selector: string): Promise<number> {
  await page.goto('about:blank');
  await page.addInitScript(wanted => {
    const look = () => {
      if (document.querySelector(wanted)) {
        requestAnimationFrame(() => setTimeout(() => Object.assign(window, { painted: performance.now() })));
      } else requestAnimationFrame(look);
    };
    look();
  }, selector);
  await page.goto(url);
  await page.waitForFunction(() => 'painted' in window);
  return page.evaluate(() => (window as unknown as { painted: number }).painted);
}

async function inNewPage<T>(browser: Browser, work: (page: Page) => Promise<T>): Promise<T> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(PATIENCE_MS);
  try {
    return await work(await context.newPage());
  } finally {
    await context.close();
  }
}

async function repeated(browser: Browser, work: (page: Page) => Promise<number>): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await inNewPage(browser, work));
  return times;
}

/** Draws 100,000 points as the pages do: the chart is made and painted. */
async function drawCurve(page: Page, origin: string, points: number): Promise<number> {
  await page.goto(`${origin}/runs/`);
  return page.evaluate(async count => {
    const library = '/runs/assets/libraries/uplot.js';
    const { default: Plot } = await import(library);
    const x = Array.from({ length: count }, (_, i) => i);
    const y = x.map(i => Math.sin(i / 1000) + ((i * 7919) % 1000) / 1000);
    const place = document.createElement('div');
    document.body.prepend(place);
    const began = performance.now();
    const series = [{}, { stroke: '#17705f', width: 2 }];
    new Plot({ width: 1200, height: 300, scales: { x: { time: false } }, series }, [x, y], place);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - began;
  }, points);
}

/** Frames per second and the longest frame in ms while a page scrolls. */
async function scrolled(page: Page): Promise<{ readonly fps: number; readonly longest: number }> {
  return page.evaluate(
    frames =>
      new Promise(done => {
        const times: number[] = [];
        const step = (now: number) => {
          times.push(now);
          scrollBy(0, 60);
          if (times.length <= frames) return requestAnimationFrame(step);
          const gaps = times.slice(1).map((time, i) => time - times[i]);
          done({ fps: (1000 * gaps.length) / (times.at(-1)! - times[0]), longest: Math.max(...gaps) });
        };
        requestAnimationFrame(step);
      }),
    SCROLLED_FRAMES,
  );
}

/** Milliseconds from writing a row of metrics until the page shows it. */
async function liveDelay(page: Page, origin: string, file: string): Promise<number[]> {
  await page.goto(`${origin}/runs/#/run/live`);
  await page.getByText('train/return now').waitFor();
  const delays: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const value = 100 + round;
    const began = performance.now();
    appendFileSync(file, `{"step":${value},"train/return":${value}}\n`);
    await page.getByText(`train/return now ${value}`).waitFor();
    delays.push(performance.now() - began);
  }
  return delays;
}

const shown = (times: readonly number[]) =>
  `median ${Math.round(median(times))} ms of ${times.length}, worst ${Math.round(Math.max(...times))} ms`;

const browser = await chromium.launch({ executablePath: values.chromium, args: ['--no-sandbox'] });
const open = async (name: string) => {
  const root = join(folder, name);
  mkdirSync(root);
  const app = await createDashboard({ runs: root, host: '127.0.0.1', allowedHosts: '' });
  return { root, app, origin: await app.listen({ host: '127.0.0.1', port: 0 }) };
};

try {
  const many = await open('many');
  writeManyRuns(many.root, Number(values.runs));
  const first = await inNewPage(browser, page => untilPainted(page, `${many.origin}/runs/`, 'tbody a'));
  console.log(
    `Runs with ${values.runs} runs, first paint of rows: ${Math.round(first)} ms when nothing is known yet`,
  );
  const again = await repeated(browser, page => untilPainted(page, `${many.origin}/runs/`, 'tbody a'));
  console.log(`  later: ${shown(again)}`);
  await many.app.close();

  const few = await open('few');
  const points = Number(values.rows);
  writeLongRun(few.root, 'curve', points);
  console.log(
    `Curve of ${points} points, drawn: ${shown(await repeated(browser, page => drawCurve(page, few.origin, points)))}`,
  );
  const chart = '.small-charts canvas';
  const cold = await inNewPage(browser, page => untilPainted(page, `${few.origin}/runs/#/run/curve`, chart));
  const warm = await repeated(browser, page => untilPainted(page, `${few.origin}/runs/#/run/curve`, chart));
  console.log(`  page of the run, first read of the file: ${Math.round(cold)} ms; later: ${shown(warm)}`);
  const longRows = Number(values['long-rows']);
  writeLongRun(few.root, 'long', longRows);
  const longCold = await inNewPage(browser, page =>
    untilPainted(page, `${few.origin}/runs/#/run/long`, chart),
  );
  const longWarm = await repeated(browser, page =>
    untilPainted(page, `${few.origin}/runs/#/run/long`, chart),
  );
  console.log(`Run with ${longRows} rows, first read: ${Math.round(longCold)} ms; later: ${shown(longWarm)}`);

  writeSampleRun(few.root, 'episode', { ...EPISODE, steps: 10, groups: 1 });
  const frames = await inNewPage(browser, async page => {
    await page.goto(`${few.origin}/runs/#/run/episode/episode?file=train-000010&index=0&turns=all`);
    await page
      .locator('.turn')
      .nth(EPISODE.turns - 1)
      .waitFor({ state: 'attached' });
    return scrolled(page);
  });
  console.log(
    `Episode of ${EPISODE.turns} turns and ${EPISODE.tokens} tokens scrolls at ${frames.fps.toFixed(1)} frames/s, longest frame ${frames.longest.toFixed(0)} ms`,
  );

  const live = writeSampleRun(few.root, 'live', { steps: 5 });
  const delays = await inNewPage(browser, page => liveDelay(page, few.origin, join(live, 'metrics.jsonl')));
  console.log(`Metrics appear after they were written: ${shown(delays)}`);
  await few.app.close();
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
