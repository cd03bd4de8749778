/**
 * Whether pages that stay open for a day stay small: `npm run bench:web-day [-- --rows 20000 --sessions 2000 --chromium /usr/bin/chromium]`. A day's rows and
 * sessions come within minutes; after each part the page's garbage is collected, and its memory and DOM nodes are counted. Ends
 * with 1 where they keep growing. Needs chromium.
 */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { createApp } from '../env-server/app.ts';
import { writeSampleRun } from '../site/server/sample-runs.test-data.ts';
import { createDashboard } from '../trainer/dashboard/server.ts';
import { scriptFlags } from './flags.ts';

const { values } = scriptFlags(import.meta.filename, {
  options: {
    rows: { type: 'string', default: '20000' },
    sessions: { type: 'string', default: '2000' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});
const PARTS = 5;
/** Rows written at once, and the pause after them. */
const ROWS_AT_ONCE = 100;
const PAUSE_MS = 250;
const STEPS_OF_A_SESSION = 4;
/** Steps that the run has behind it. */
const LEARNED = 30;
/** Allowed growth from the second part to the last; the first fills the bounded caches. */
const MAX_GROWTH = 1.25;
const PATIENCE_MS = 120_000;

interface Size {
  readonly nodes: number;
  readonly heapMb: number;
}

const folder = mkdtempSync(join(tmpdir(), 'ragen-bench-day-'));
const browser = await chromium.launch({ executablePath: values.chromium, args: ['--no-sandbox'] });
try {
  const results = [
    ...(await watchedRun(['#/run/live', '#/run/live/filter', '#/run/live/system'], Number(values.rows))),
    await wall(Number(values.sessions)),
  ];
  if (!results.every(isBounded)) {
    console.log('a page keeps growing');
    process.exitCode = 1;
  }
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}

/** Views of a run that continues. */
async function watchedRun(hashes: readonly string[], rows: number): Promise<Size[][]> {
  const status = { state: 'running', stage: 'training', pid: process.pid } as const;
  const run = writeSampleRun(folder, 'live', {
    steps: LEARNED,
    status: { ...status, updated_at: new Date().toISOString() },
  });
  const app = await createDashboard({ runs: folder, host: '127.0.0.1', allowedHosts: '' });
  const origin = await app.listen({ host: '127.0.0.1', port: 0 });
  const pages = await Promise.all(hashes.map(hash => openPage(browser, `${origin}/runs/${hash}`)));
  const last = (name: string) => readFileSync(join(run, name), 'utf8').trim().split('\n').at(-1)!;
  const [metrics, groups] = ['metrics.jsonl', 'groups.jsonl'].map(name => JSON.parse(last(name)) as object);
  const about = JSON.parse(readFileSync(join(run, 'status.json'), 'utf8')) as object;
  let step = LEARNED;
  const sizes = await measured(pages, hashes, async () => {
    for (const end = step + rows / PARTS; step < end; await pause(PAUSE_MS)) {
      const steps = Array.from({ length: ROWS_AT_ONCE }, () => ++step);
      const lines = (row: object) =>
        steps.map(each => `${JSON.stringify({ ...row, step: each })}\n`).join('');
      appendFileSync(join(run, 'metrics.jsonl'), lines(metrics));
      appendFileSync(join(run, 'groups.jsonl'), lines(groups));
      const updated_at = new Date().toISOString();
      writeFileSync(
        join(run, 'status.json'),
        JSON.stringify({ ...about, step, steps: LEARNED + rows, updated_at }),
      );
    }
    // What was written last is there before the pages are measured.
    await pages[0].getByText(`step ${step} of ${LEARNED + rows}`).waitFor();
  });
  await app.close();
  return sizes;
}

/** The wall of sessions, while sessions come and go. */
async function wall(sessions: number): Promise<Size[]> {
  const { server } = await createApp({ logLevel: 'silent' });
  await server.listen({ host: '127.0.0.1', port: 0 });
  const page = await openPage(
    browser,
    `http://127.0.0.1:${(server.server.address() as AddressInfo).port}/#/watch`,
  );
  const ask = (method: 'POST' | 'DELETE', url: string, payload?: object) =>
    server.inject({ method, url, ...(payload && { payload }) });
  const [sizes] = await measured([page], ['#/watch'], async () => {
    for (let i = 0; i < sessions / PARTS; i++) {
      const opened = await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0', seed: i });
      const { session_id: id } = opened.json() as { session_id: string };
      for (let turn = 0; turn < STEPS_OF_A_SESSION; turn++)
        await ask('POST', `/v1/sessions/${id}/step`, { action: 1 + (turn % 4) });
      await ask('DELETE', `/v1/sessions/${id}`);
      if (i % 10 === 0) await pause(PAUSE_MS);
    }
  });
  await page.close();
  await server.close();
  return sizes;
}

async function openPage(of: Browser, url: string): Promise<Page> {
  const context = await of.newContext({ viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  await page.goto(url);
  await page.locator('h1').first().waitFor();
  return page;
}

/** Sizes of pages at the start and after each part. */
async function measured(pages: readonly Page[], names: readonly string[], work: () => Promise<void>) {
  const sizes = pages.map((): Size[] => []);
  for (let part = 0; part <= PARTS; part++) {
    if (part > 0) await work();
    for (const [i, page] of pages.entries()) sizes[i].push(await sizeOf(page));
  }
  sizes.forEach((parts, i) => {
    const nodes = parts.map(size => size.nodes).join(' → ');
    const heap = parts.map(size => size.heapMb.toFixed(1)).join(' → ');
    console.log(`${names[i]}: DOM nodes ${nodes}; JavaScript memory in MB ${heap}`);
  });
  return sizes;
}

async function sizeOf(page: Page): Promise<Size> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const of = (wanted: string) => metrics.find(({ name }) => name === wanted)!.value;
  await session.detach();
  return { nodes: of('Nodes'), heapMb: of('JSHeapUsedSize') / 1e6 };
}

function isBounded(parts: readonly Size[]): boolean {
  const [second, last] = [parts[2], parts.at(-1)!];
  return last.nodes <= MAX_GROWTH * second.nodes && last.heapMb <= MAX_GROWTH * second.heapMb;
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms));
}
