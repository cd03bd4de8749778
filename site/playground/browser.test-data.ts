import { accessSync, constants } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import axe from 'axe-core';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { type App, type AppParts, createApp } from '../../env-server/app.ts';
import type { Settings } from '../../env-server/config/settings.ts';

/** The shell comes first: the same engine without the windows of a desktop, at less than half of the processor time. */
const NAMES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];
/** Milliseconds that a busy machine may need until an element shows up. */
export const PATIENCE_MS = 120_000;

function findChromium(): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter);
  return NAMES.flatMap(name => folders.map(folder => join(folder, name))).find(path => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

const executable = findChromium();
/** For `t.test(name, { skip }, …)`: why browser tests cannot run here. */
export const skip =
  executable === undefined && 'no chromium on this machine: apt-get install chromium-headless-shell';

let running: Promise<Browser> | undefined;

/** One browser for the tests of a file. */
export function browser(): Promise<Browser> {
  running ??= chromium.launch({
    executablePath: executable,
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  });
  return running;
}
t.teardown(async () => (await running)?.close());

export interface Playground extends App {
  readonly page: Page;
  readonly origin: string;
  /** Asks the server without the page. */
  ask<T>(method: string, path: string, body?: unknown): Promise<T>;
}

/** A real server and its page in a browser; what the page throws or its policy forbids fails the test. */
export async function openPlayground(
  t: Test,
  hash = '',
  {
    settings = {},
    parts = {},
    context = {},
    port = 0,
  }: { settings?: Partial<Settings>; parts?: AppParts; context?: BrowserContextOptions; port?: number } = {},
): Promise<Playground> {
  const app = await createApp({ logLevel: 'silent', ...settings }, parts);
  const { server } = app;
  await server.listen({ host: '127.0.0.1', port });
  const origin = `http://127.0.0.1:${(server.server.address() as AddressInfo).port}`;
  const opened = await (await browser()).newContext({ viewport: { width: 1280, height: 900 }, ...context });
  opened.setDefaultTimeout(PATIENCE_MS);
  const page = await opened.newPage();
  page.on('pageerror', error => t.fail(`the page threw: ${error.message}`));
  page.on('console', message => {
    if (/Content.Security.Policy/i.test(message.text())) t.fail(message.text());
  });
  t.teardown(async () => {
    if (!t.passing()) {
      t.comment(`the page at the end, ${page.url()}:\n${await page.locator('body').ariaSnapshot()}`);
    }
    await opened.close();
    await server.close();
  });
  await page.goto(`${origin}/${hash}`);
  return {
    ...app,
    page,
    origin,
    async ask(method, path, body) {
      const response = await fetch(`${origin}/${path}`, {
        method,
        headers: body === undefined ? {} : { 'content-type': 'application/json' },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      const text = await response.text();
      return text === '' ? undefined : JSON.parse(text);
    },
  };
}

/** The observation as text; folded away below most boards. */
export const observation = (page: Page) => page.locator('.observation');

/** Waits until an episode is in progress. */
export const seeBoard = (page: Page) => page.locator('.state .board').waitFor();

/** Waits until an episode of an environment is in progress after a way there from another one. */
export async function seeBoardOf(page: Page, envId: string): Promise<void> {
  // The board of the other one is gone by then.
  await page.locator(`.environments [data-env="${envId}"][aria-current]`).waitFor({ state: 'attached' });
  await seeBoard(page);
}

/** Lets requests wait until what it gives is called. */
export async function hold(page: Page, url: string): Promise<() => void> {
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  await page.route(url, async route => {
    await held;
    await route.continue();
  });
  return release;
}

/** The last curl line of the log. */
export async function lastCurl(page: Page): Promise<string> {
  const log = await page.locator('.code-log code').textContent();
  return log!.slice(log!.lastIndexOf('curl -s'));
}

/** One of the numbers above the board. */
export const figure = (page: Page, name: string) => page.locator(`[data-figure="${name}"] dd`);

/** Waits until the board says what it should. */
export async function seeFigure(page: Page, name: string, text: string): Promise<void> {
  await figure(page, name).filter({ hasText: text }).waitFor();
}

/**
 * What axe finds wrong with the page as it is now, a line each.
 * @param rules that are checked; all that axe has on where none is given
 */
export async function accessibilityProblems(page: Page, rules?: readonly string[]): Promise<string[]> {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe.source);
  const violations = await page.evaluate(async rules => {
    const { axe: checker } = window as unknown as { axe: typeof axe };
    const found = await checker.run({ resultTypes: ['violations'], ...(rules && { runOnly: [...rules] }) });
    return found.violations.map(({ id, help, nodes }) => ({
      id,
      help,
      nodes: nodes.map(({ html, failureSummary }) => ({ html, failureSummary })),
    }));
  }, rules);
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${help}\n${html}\n${failureSummary}`),
  );
}

/** Themes and widths in pixels: a phone and a screen, and both in both themes. */
export const PHONE_AND_SCREEN = [
  ['light', 390],
  ['dark', 1280],
] as const;
const FOUR_LOOKS = [...PHONE_AND_SCREEN, ['dark', 390], ['light', 1280]] as const;

/**
 * Checks a page in themes and widths: it is accessible and does not scroll sideways. The variable `SHOTS` names the
 * beginning of the paths of pictures.
 */
export async function seeLooks(
  t: Test,
  page: Page,
  name: string,
  looks: readonly (readonly ['light' | 'dark', number])[] = FOUR_LOOKS,
): Promise<void> {
  for (const [colorScheme, width] of looks) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height: 900 });
    const look = `${name}, ${colorScheme}, ${width} px`;
    t.ok((await overflow(page)) <= 0, `${look}: no scrolling sideways`);
    t.same(await accessibilityProblems(page), [], `${look}: accessible`);
    if (process.env.SHOTS)
      await page.screenshot({
        path: `${process.env.SHOTS}${name}-${width}-${colorScheme}.png`,
        fullPage: true,
      });
  }
}

/** Pixels by which the page is wider than its window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
}
