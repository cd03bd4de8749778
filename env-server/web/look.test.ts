import t from 'tap';
import { accessibilityProblems, openPlayground, overflow, skip } from './browser.test-data.ts';
import type { Session } from './page/client/wire.ts';

/** Themes and widths together: axe takes a second for each. */
const LOOKS = [
  ['light', { width: 360, height: 740 }],
  ['dark', { width: 1600, height: 1000 }],
] as const;

/** A browser, and axe in it, on a busy machine. */
t.setTimeout(300_000);

const VIEWS = [
  { name: 'play', hash: '#/play/FrozenLake-v0?seed=7', ready: '.observation' },
  { name: 'play by text', hash: '#/play/ALFWorld-v0?seed=7', ready: '.observation' },
  { name: 'watch', hash: '#/watch', ready: 'tbody tr' },
  { name: 'a session', hash: '#/watch/', ready: '.figures dd' },
  { name: 'register', hash: '#/register', ready: 'option' },
];

t.test('every view is accessible and fits, light on a phone and dark on a wide screen', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t);
  const { session_id: id } = await ask<Session>('POST', 'v1/sessions', {
    env_id: 'Sokoban-v0',
    seed: 3,
    ttl_s: 600,
  });
  for (const action of ['Up', 'Down', 'Left']) await ask('POST', `v1/sessions/${id}/step`, { action });
  for (const { name, hash, ready } of VIEWS) {
    await page.goto(`${origin}/${hash === '#/watch/' ? `${hash}${id}` : hash}`);
    await page.locator(ready).first().waitFor({ state: 'attached' });
    await page.evaluate(() => {
      for (const details of Array.from(document.querySelectorAll('details'))) details.open = true;
    });
    for (const [colorScheme, viewport] of LOOKS) {
      // Axe must not see a color on its way from one theme to the other.
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize(viewport);
      const look = `${name}, ${colorScheme}, ${viewport.width} px`;
      t.equal(await overflow(page), 0, `${look}: no scrolling sideways`);
      t.same(await accessibilityProblems(page), [], `${look}: accessible`);
    }
  }
});

t.test('the theme is the system’s until it is switched, and stays switched', { skip }, async t => {
  const { page } = await openPlayground(t, '#/register', { context: { colorScheme: 'light' } });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const button = page.getByRole('button', { name: 'Dark' });
  const light = await background();
  t.equal(await button.getAttribute('aria-pressed'), 'false');
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await background();
  t.not(dark, light);
  // The page hears of the change, some time later.
  await page.getByRole('button', { name: 'Dark', pressed: true }).waitFor();
  await page.emulateMedia({ colorScheme: 'light' });
  await button.click();
  t.equal(await background(), dark);
  await page.reload();
  t.equal(await background(), dark, 'after a reload');
  await page.getByRole('button', { name: 'Dark' }).click();
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
