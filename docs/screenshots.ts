/**
 * Writes pictures of the site into docs/pictures/site: `npm run docs:screenshots`. It needs Chromium (`CHROMIUM`, or
 * `chromium` in the path) and starts a server with sessions of the reference policies.
 */
import { mkdirSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { chromium, type Page } from 'playwright-core';
import { createApp } from '../env-server/app.ts';
import { createRegistry } from '../env-server/environments/registry.ts';
import type { Json } from '../shared/json.ts';

const FOLDER = new URL('pictures/site/', import.meta.url);
const SIZES = {
  desktop: { width: 1440, height: 900 },
  tablet: { width: 1024, height: 768 },
  phone: { width: 390, height: 844 },
} as const;
/** Time for animations and the feed of the wall before a picture is taken, in milliseconds. */
const SETTLE_MS = 1500;
/** A busy machine needs this long for a page, in milliseconds. */
const PATIENCE_MS = 120_000;
const SEED = 4;
const MAX_STEPS = 5;

interface Picture {
  readonly name: string;
  readonly hash: string;
  readonly size: keyof typeof SIZES;
  readonly theme: 'light' | 'dark';
  /** Actions on the page before the picture. */
  readonly act?: (page: Page) => Promise<void>;
}

const keys =
  (...names: readonly string[]) =>
  async (page: Page) => {
    for (const name of names) {
      await page.keyboard.press(name);
      await page.waitForTimeout(SETTLE_MS / 4);
    }
  };

const PICTURES: readonly Picture[] = [
  {
    name: 'play',
    hash: '#/play/Sokoban-v0?seed=3',
    size: 'desktop',
    theme: 'light',
    act: keys('ArrowLeft', 'ArrowUp'),
  },
  {
    name: 'play-phone',
    hash: '#/play/Game2048-v0?seed=5',
    size: 'phone',
    theme: 'dark',
    act: keys('ArrowLeft', 'ArrowUp', 'ArrowLeft'),
  },
  {
    name: 'play-shop',
    hash: '#/play/TextShop-v0?seed=3',
    size: 'tablet',
    theme: 'light',
    act: async page => {
      await page.getByRole('searchbox', { name: 'Search the shop' }).fill('memory foam sandals');
      await page.keyboard.press('Enter');
      await page.locator('.shop-results').waitFor();
    },
  },
  { name: 'watch', hash: '#/watch', size: 'desktop', theme: 'dark' },
  { name: 'environments', hash: '#/environments', size: 'desktop', theme: 'light' },
];

const app = await createApp({ logLevel: 'silent' });
await app.server.listen({ host: '127.0.0.1', port: 0 });
const origin = `http://127.0.0.1:${(app.server.server.address() as AddressInfo).port}`;

async function ask(path: string, body: { readonly [key: string]: Json }) {
  const response = await fetch(`${origin}/v1/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return (await response.json()) as { session_id: string; actions?: Json[] };
}

/** Sessions of all environments, each some steps into its episode. */
async function playAll(): Promise<void> {
  for (const { spec, references = {} } of createRegistry().list()) {
    const { session_id: id } = await ask('sessions', { env_id: spec.id, seed: SEED });
    const [policy] = Object.keys(references);
    for (let step = 0; step < MAX_STEPS; step++) {
      const { actions = [] } = await ask(`sessions/${id}/reference`, { policy, count: 1 });
      if (actions.length === 0) break;
      await ask(`sessions/${id}/step`, { action: actions[0] });
    }
  }
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
try {
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, hash, size, theme, act } of PICTURES) {
    if (hash === '#/watch') await playAll();
    const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    await page.goto(`${origin}/${hash}`);
    // A page that cannot wait shows the system's faces: now its own are in the cache.
    await page.reload();
    await page.locator('.board').first().waitFor();
    await page.waitForTimeout(SETTLE_MS);
    await act?.(page);
    await page.waitForTimeout(SETTLE_MS);
    const path = `docs/pictures/site/${name}.png`;
    await page.screenshot({ path: new URL(`${name}.png`, FOLDER).pathname });
    await context.close();
    console.log(`wrote ${path}`);
  }
} finally {
  await browser.close();
  await app.server.close();
}
