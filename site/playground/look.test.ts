import type { Route, ViewportSize } from 'playwright-core';
import t from 'tap';
import type { Session } from '../player/wire.ts';
import {
  accessibilityProblems,
  hold,
  openPlayground,
  overflow,
  seeBoardOf,
  skip,
} from './browser.test-data.ts';

/** Themes and sizes together: axe takes a second for each. The last differs from the one before in colors only. */
const LOOKS: readonly (readonly ['light' | 'dark', ViewportSize, (readonly string[])?])[] = [
  ['light', { width: 390, height: 844 }],
  ['dark', { width: 1024, height: 768 }],
  ['light', { width: 1440, height: 900 }],
  ['dark', { width: 1440, height: 900 }, ['color-contrast', 'link-in-text-block']],
];

/** A browser, and axe in it, on a busy machine. */
t.setTimeout(900_000);

const VIEWS = [
  { name: 'play', hash: '#/play/FrozenLake-v0?seed=7', plays: 'FrozenLake-v0', ready: '.state .board' },
  { name: 'play a Sudoku', hash: '#/play/Sudoku-v0?seed=7', plays: 'Sudoku-v0', ready: '.state .board' },
  { name: 'play by clicks', hash: '#/play/TextShop-v0?seed=7', plays: 'TextShop-v0', ready: '.state .board' },
  {
    name: 'play in a house',
    hash: '#/play/TextHousehold-v0?seed=5',
    plays: 'TextHousehold-v0',
    ready: '.state .board',
  },
  { name: 'play by text', hash: '#/play/Lean-v1?seed=7', plays: 'Lean-v1', ready: '.state .board' },
  {
    name: 'the end of an episode',
    hash: '#/play/FrozenLake-v0?seed=7&preset=deterministic&actions=["Right","Down","Right","Down"]',
    ready: '.end-banner .headline',
  },
  { name: 'watch', hash: '#/watch', ready: '.card' },
  { name: 'a session', hash: '#/watch/', ready: '.figures dd' },
  { name: 'environments', hash: '#/environments', ready: '.gallery-card' },
  { name: 'register', hash: '#/register', ready: '.register-view option' },
  { name: 'reference', hash: 'docs/#/environments/register', ready: '.operation textarea' },
];

t.test('every view is accessible and fits, in both themes and three sizes', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t);
  const { session_id: id } = await ask<Session>('POST', 'v1/sessions', {
    env_id: 'Sokoban-v0',
    seed: 3,
    ttl_s: 600,
  });
  for (const action of ['Up', 'Down', 'Left']) await ask('POST', `v1/sessions/${id}/step`, { action });
  for (const { name, hash, ready, plays } of VIEWS) {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await page.goto(`${origin}/${hash === '#/watch/' ? `${hash}${id}` : hash}`);
    if (plays) await seeBoardOf(page, plays);
    await page.locator(ready).first().waitFor({ state: 'attached' });
    await page.evaluate(() => {
      for (const details of Array.from(document.querySelectorAll('details'))) details.open = true;
    });
    for (const [colorScheme, viewport, rules] of LOOKS) {
      // Axe must not see a color on its way from one theme to the other.
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize(viewport);
      const look = `${name}, ${colorScheme}, ${viewport.width} px`;
      t.equal(await overflow(page), 0, `${look}: no scrolling sideways`);
      t.same(await accessibilityProblems(page, rules), [], `${look}: accessible`);
    }
  }
});

t.test(
  'the field for a text is directly under its task, at the width of a phone and of a screen',
  { skip },
  async t => {
    const { page, origin } = await openPlayground(t);
    for (const game of ['Countdown-v0', 'Lean-v1']) {
      await page.goto(`${origin}/#/play/${game}?seed=7`);
      await seeBoardOf(page, game);
      for (const [, viewport] of [LOOKS[0], LOOKS[2]]) {
        await page.setViewportSize(viewport);
        const task = (await page.locator('.state .board').boundingBox())!;
        const field = (await page.getByRole('textbox', { name: 'Action' }).boundingBox())!;
        const gap = field.y - task.y - task.height;
        t.ok(gap >= 0 && gap < 40, `${game}, ${viewport.width} px: ${gap} px between them`);
      }
    }
    const theorem = (await page.locator('.proof pre').first().boundingBox())!;
    const goal = (await page.locator('.proof .goal').first().boundingBox())!;
    t.ok(goal.x >= theorem.x + theorem.width, 'the goal is next to its theorem on a screen');
    await page.goto(`${origin}/#/play/SearchQA-v0?seed=7`);
    await seeBoardOf(page, 'SearchQA-v0');
    await page.getByRole('textbox', { name: 'Action' }).fill('search[the painter of The Crooked Garden]');
    await page.getByRole('button', { name: 'Send' }).click();
    const steps = page.getByRole('region', { name: 'Steps taken' });
    await steps.locator('tbody tr').waitFor();
    t.equal(await steps.evaluate(each => each.scrollWidth - each.clientWidth), 0, 'a long action is cut');
    for (const game of ['Spatial-v0', 'TextHousehold-v0']) {
      await page.goto(`${origin}/#/play/${game}?seed=7`);
      await seeBoardOf(page, game);
      await page.setViewportSize({ width: 768, height: 1024 });
      const state = (await page.locator('.state').boundingBox())!;
      t.ok(state.height <= 360, `${game}: ${state.height} px above the field`);
    }
  },
);

t.test('one tab stop lies before the board, and leads to it', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await page.locator('.state:focus').waitFor();
  await page.locator('#skip').focus();
  await page.keyboard.press('Enter');
  await page.locator('.state:focus').waitFor();
  const stops = await page.evaluate(() => {
    const all = Array.from(document.querySelectorAll<HTMLElement>('a[href], button, input, select'));
    const board = document.querySelector('.state')!;
    return all.filter(
      element =>
        element.checkVisibility() &&
        element.compareDocumentPosition(board) & Node.DOCUMENT_POSITION_FOLLOWING,
    ).length;
  });
  t.equal(stops, 1, 'the link to the content');
});

t.test(
  'the gallery says that it loads until the environments are there, or why they are not',
  { skip },
  async t => {
    const { page, origin } = await openPlayground(t, '#/register');
    const loading = page.getByText('Loading the environments');
    const release = await hold(page, '**/v1/envs');
    await page.getByRole('link', { name: 'Environments' }).click();
    await loading.waitFor();
    release();
    await page.locator('.gallery-card').first().waitFor();
    t.equal(await loading.count(), 0, 'a slow server');
    let answer = (route: Route) => route.continue();
    await page.route('**/v1/envs', route => answer(route));
    for (const fail of [
      (route: Route) => route.fulfill({ status: 500, contentType: 'application/problem+json', body: '{}' }),
      (route: Route) =>
        route.fulfill({ status: 502, contentType: 'text/html', body: '<h1>Bad gateway</h1>' }),
      (route: Route) => route.abort(),
    ]) {
      answer = fail;
      await page.goto(`${origin}/#/register`);
      await page.getByRole('link', { name: 'Environments' }).click();
      await page.locator('.gallery .problem:visible').waitFor();
      await loading.waitFor({ state: 'detached' });
    }
    answer = route => route.continue();
    await page.goto(`${origin}/#/register`);
    await page.getByRole('link', { name: 'Environments' }).click();
    await page.locator('.gallery-card').first().waitFor();
    t.equal(
      await page.locator('.gallery .problem:visible').count(),
      0,
      'the error of the time before is gone',
    );
  },
);

t.test('the theme is the system’s until it is switched, and stays switched', { skip }, async t => {
  const { page } = await openPlayground(t, '#/register', { context: { colorScheme: 'light' } });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', { name: 'Dark theme' }).waitFor();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await background();
  t.not(dark, light);
  await page.getByRole('button', { name: 'Light theme' }).waitFor();
  await page.emulateMedia({ colorScheme: 'light' });
  await page.getByRole('button', { name: 'Dark theme' }).click();
  t.equal(await background(), dark);
  await page.reload();
  t.equal(await background(), dark, 'after a reload');
  await page.getByRole('button', { name: 'Light theme' }).click();
  t.equal(await background(), light);
  await page.emulateMedia({ colorScheme: 'dark' });
  t.equal(await background(), dark, 'the system is followed again');
});

t.test('a page under prefers-reduced-motion shows no motion', { skip }, async t => {
  const { page } = await openPlayground(t, '#/register', { context: { reducedMotion: 'reduce' } });
  const button = page.getByRole('button', { name: 'Check and register' });
  t.equal(await button.evaluate(element => getComputedStyle(element).transitionDuration), '0s');
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  t.not(await button.evaluate(element => getComputedStyle(element).transitionDuration), '0s');
});
