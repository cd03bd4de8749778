import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import type { Schemas } from '../player/wire.ts';
import { hold, lastCurl, openPlayground, seeBoard, seeFigure, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

t.test('the curl line does what the page did', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await page.getByRole('button', { name: 'Down' }).click();
  await seeFigure(page, 'Step', '1 of');
  const { stdout } = await promisify(execFile)('sh', ['-c', await lastCurl(page)]);
  t.match(JSON.parse(stdout), { step: 2 }, 'it stepped the same session');
  await page.getByRole('button', { name: 'Up' }).click();
  await seeFigure(page, 'Step', '3 of');
  t.equal(await page.locator('tbody tr').count(), 3, 'the page took over the step that it did not take');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  // It is said for two seconds.
  const said = page.getByText('Copied').waitFor();
  await page.getByRole('button', { name: /^Copy/ }).click();
  await said;
  t.ok((await page.evaluate(() => navigator.clipboard.readText())).endsWith(await lastCurl(page)));
});

t.test(
  'reloading or coming back in the middle of an episode continues it, also on a server without data',
  { skip },
  async t => {
    const { page, origin, sessions } = await openPlayground(t, '#/play/Sokoban-v0?seed=7');
    await seeBoard(page);
    for (const [n, key] of ['ArrowUp', 'ArrowLeft', 'ArrowDown'].entries()) {
      await page.keyboard.press(key);
      await seeFigure(page, 'Step', `${n + 1} of`);
    }
    const board = await page
      .locator('.play .board')
      .first()
      .textContent()
      .catch(() => '');
    await page.reload();
    await seeFigure(page, 'Step', '3 of');
    await page.goto(`${origin}/#/register`);
    await page.goBack();
    await seeFigure(page, 'Step', '3 of');
    // A server that starts again without data knows none of the sessions: the address has start and actions.
    for (const session of [...sessions.open()]) sessions.end(session);
    await page.reload();
    await seeFigure(page, 'Step', '3 of');
    t.equal(
      await page
        .locator('.play .board')
        .first()
        .textContent()
        .catch(() => ''),
      board,
    );
  },
);

t.test('a server with tokens is asked with one, which only this tab remembers', { skip }, async t => {
  const tokens = JSON.stringify([{ name: 'visitor', sha256: hashToken('open sesame'), scopes: ['play'] }]);
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7', { settings: { tokens } });
  const field = page.getByRole('textbox', { name: 'Token' });
  await page.getByText('This server wants a token.').waitFor();
  await field.fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('This server does not know that token.').waitFor();
  await field.fill('open sesame');
  await page.keyboard.press('Enter');
  await seeBoard(page);
  t.match(await lastCurl(page), /-H "authorization: Bearer \$RAGEN_TOKEN"/);
  t.notMatch(await page.locator('body').textContent(), /open sesame/);
  t.equal(await page.evaluate(() => `${sessionStorage.length} ${JSON.stringify(localStorage)}`), '1 {}');
  await page.getByRole('button', { name: 'Forget' }).click();
  await page.getByText('This server wants a token.').waitFor();
  t.equal(await page.evaluate(() => sessionStorage.length), 0);
});

t.test('the pages about runs ask for the token of their server', { skip }, async t => {
  const tokens = JSON.stringify([{ name: 'visitor', sha256: hashToken('open sesame'), scopes: ['play'] }]);
  const { page } = await openPlayground(t, 'runs/#/', { settings: { tokens, runs: t.testdir() } });
  await page.getByText('This server wants a token.').waitFor();
  for (const [token, answer] of [
    ['wrong', 'This server does not know that token.'],
    ['open sesame', 'No runs yet.'],
  ]) {
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    await page.getByText(answer).waitFor();
  }
  t.equal(await page.getByLabel('Token').count(), 0);
});

t.test('the page says that a session is gone, and starts a new one', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  const { sessions } = await ask<Schemas['SessionPage']>('GET', 'v1/sessions');
  await ask('DELETE', `v1/sessions/${sessions[0].session_id}`);
  await page.getByRole('button', { name: 'Down' }).click();
  const problem = page.locator('.play .problem');
  await problem.filter({ hasText: 'session_closed' }).waitFor();
  const release = await hold(page, '**/v1/sessions');
  await page.getByRole('button', { name: 'Reset' }).click();
  await page.getByRole('button', { name: 'Down' }).click();
  release();
  await seeFigure(page, 'Step', '1 of');
  t.ok(await problem.isHidden(), 'what is pressed meanwhile is done in the new episode');
});

t.test('a page that is left closes its session', { skip }, async t => {
  const { page, origin, ask } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  const open = async () =>
    (await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions.map(({ env_id }) => env_id);
  t.equal((await open()).length, 1);
  await page.getByRole('link', { name: /Sudoku/ }).click();
  await page.getByLabel('Action', { exact: true }).waitFor();
  await until(async () => (await open()).join() === 'Sudoku-v0');
  t.same(await open(), ['Sudoku-v0']);
  // A page that is left for another site gets half a second: on a busy machine Chromium ends it before it can say so.
  await page.goto(`${origin}/docs/`);
  await until(async () => (await open()).length === 0);
  t.equal((await open()).length, 0);
});

t.test('a page that is left before it knows what to play opens no session', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/watch');
  await page.getByText('No session is open here.').waitFor();
  const release = await hold(page, '**/v1/envs');
  const listed = page.waitForResponse(/v1\/envs$/);
  await page.getByRole('link', { name: 'Play', exact: true }).click();
  await page.getByRole('searchbox', { name: 'Search' }).waitFor();
  await page.getByRole('link', { name: 'Watch' }).click();
  const created: string[] = [];
  page.on('request', request => request.method() === 'POST' && created.push(request.url()));
  release();
  await (await listed).finished();
  // What the page asks for because of the list is asked before this.
  await page.evaluate(() => fetch('/v1/envs').then(response => response.text()));
  t.same(created, []);
  t.same((await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions, []);
});

t.test('a link that is pressed while the list is read again leads on', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  const release = await hold(page, '**/v1/envs');
  await page.getByRole('link', { name: /Sokoban/ }).click();
  await page.getByRole('heading', { level: 1, name: 'Sokoban' }).waitFor();
  await seeBoard(page);
  const listed = page.waitForResponse(/v1\/envs$/);
  await page.getByRole('link', { name: /Sudoku/ }).hover();
  await page.mouse.down();
  release();
  await (await listed).finished();
  await page.mouse.up();
  await page.getByRole('heading', { level: 1, name: 'Sudoku' }).waitFor();
});

t.test('a policy that is stopped while it thinks takes no step', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  const release = await hold(page, '**/reference');
  const planned = page.waitForResponse(/\/reference$/);
  await page.getByRole('button', { name: 'Play on' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  release();
  await (await planned).finished();
  await page.getByRole('button', { name: 'Up', exact: true }).click();
  await seeFigure(page, 'Action', 'Up');
  t.equal(await page.locator('tbody tr').count(), 1);
});

t.test('half-written input stays, and the address names what is played', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  await page.waitForURL(/seed=7/);
  const address = page.url();
  await page.getByText('Settings', { exact: true }).click();
  await page.getByLabel('Wrappers').fill('[{"name": ');
  await page.getByLabel('Seed', { exact: true }).fill('42');
  await page.getByRole('button', { name: 'Up', exact: true }).click();
  await seeFigure(page, 'Step', '1 of');
  await page.locator('tbody tr').first().waitFor();
  t.match(page.url(), /&actions=%5B%22\w+%22%5D$/);
  t.ok(page.url().startsWith(`${address}&actions=`), page.url());
  t.equal(await page.getByLabel('Seed', { exact: true }).inputValue(), '42');
  await page.getByRole('button', { name: 'Reset' }).click();
  await page.waitForURL(/seed=42/);
});

t.test('an environment that opens late leaves the focus where the visitor writes', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  const release = await hold(page, '**/v1/envs/Sokoban-v0');
  await page.getByRole('link', { name: /Sokoban/ }).click();
  await page.getByRole('heading', { level: 1, name: 'Sokoban' }).waitFor();
  const search = page.getByRole('searchbox');
  await search.focus();
  release();
  await seeBoard(page);
  await page.getByText('Opening a session').waitFor({ state: 'hidden' });
  t.ok(await search.evaluate(field => field === document.activeElement));
});

t.test('the page says that an environment does not exist', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Nowhere-v0');
  await page.locator('.problem', { hasText: '404 unknown_environment' }).waitFor();
  await page.getByRole('link', { name: /Sokoban/ }).click();
  await seeBoard(page);
  t.equal(await page.locator('.problem:visible').count(), 0);
});

t.test('an environment without copies has no undo and says why', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/test%2FHeld-v0', { parts: { registry: testRegistry() } });
  await page.getByRole('button', { name: 'add' }).click();
  await seeFigure(page, 'Step', '1 of');
  t.ok(await page.getByRole('button', { name: 'Undo' }).isDisabled());
  await page.getByText('there is no way back').waitFor();
  t.ok(await page.getByLabel('Seed').isDisabled(), 'nor does it take a seed');
  await page.getByRole('button', { name: 'Reset' }).click();
  await seeFigure(page, 'Step', '0 of');
});

t.test(
  'the title of a view has the focus after a link led there, and not where the page begins',
  { skip },
  async t => {
    const { page } = await openPlayground(t, '#/watch');
    await page.getByText('No session is open here.').waitFor();
    t.ok(await page.evaluate(() => document.activeElement === document.body));
    const site = page.getByRole('navigation', { name: 'Site' });
    for (const [link, title] of [
      ['Register', 'Register an environment'],
      ['Environments', 'Environments'],
      ['Watch', 'Sessions'],
    ] as const) {
      await site.getByRole('link', { name: link }).click();
      await page.locator('h1:focus', { hasText: title }).waitFor();
    }
  },
);
