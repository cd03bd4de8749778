import type { Browser, CDPSession, Page } from 'playwright-core';
import { median } from '../measuring.ts';

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
