import type { Page } from 'playwright-core';
import t from 'tap';
import { hashToken } from '../http/auth.ts';
import { openPlayground, skip } from './browser.test-data.ts';
import type { Schemas, Session } from './page/wire.ts';

/** A browser on a busy machine. */
t.setTimeout(110_000);

const observation = (page: Page) => page.locator('.observation');
const figure = (page: Page, name: string) => page.locator('.figures > div', { hasText: name }).locator('dd');
const lastCurl = (page: Page) => page.locator('.curl').textContent();

/** Waits until the board says what it should. */
async function seeFigure(page: Page, name: string, text: string): Promise<void> {
  await figure(page, name).filter({ hasText: text }).waitFor();
}

t.test('a visitor finds an environment and plays it by keyboard alone', { skip }, async t => {
  const { page, ask } = await openPlayground(t);
  await observation(page).waitFor();
  t.equal(
    await page.getByRole('heading', { level: 1 }).textContent(),
    'Sokoban',
    'the first one is begun at once',
  );
  await page.getByRole('searchbox').focus();
  await page.keyboard.type('slippery');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Frozen lake' }).waitFor();
  await page.locator('.state:focus').waitFor();

  await page.getByLabel('Preset').selectOption('deterministic');
  await page.getByLabel('Seed').fill('7');
  await page.keyboard.press('Enter');
  await seeFigure(page, 'Episode', 'under way');
  await page.locator('.curl', { hasText: '/reset' }).waitFor();
  t.match(await lastCurl(page), /\/reset .*-H 'content-type: application\/json' .*-d '\{"seed":7\}'$/s);
  const start = await observation(page).textContent();
  const { observation: same } = await ask<Session>('POST', 'v1/sessions', {
    env_id: 'FrozenLake-v0',
    config: { preset: 'deterministic' },
    seed: 7,
  });
  t.equal(start, same, 'the lake that the seed gives everywhere');

  await page.locator('.state').focus();
  for (const key of ['ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
  await seeFigure(page, 'Episode', 'solved');
  t.equal(await figure(page, 'Step').textContent(), '4 of 100');
  t.equal(await figure(page, 'Reward').textContent(), '1');
  t.equal(await figure(page, 'Return').textContent(), '1');
  t.match(await page.locator('#live').textContent(), /^Step 4, Down: reward 1, return 1\. solved$/);
  t.match(JSON.parse((await page.locator('.reply').textContent())!), { step: 4, terminated: true });
  t.match(page.url(), /#\/play\/FrozenLake-v0\?preset=deterministic&seed=7$/);
  await page.getByText('Info', { exact: true }).click();
  t.match(await page.locator('.info').textContent(), /success.*true/);
});

t.test('the curl line does what the page did', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await page.getByRole('button', { name: 'Down' }).click();
  await seeFigure(page, 'Step', '1 of');
  const { execFile } = await import('node:child_process');
  const { promisify } = await import('node:util');
  const { stdout } = await promisify(execFile)('sh', ['-c', (await lastCurl(page))!]);
  t.match(JSON.parse(stdout), { step: 2 }, 'it stepped the same session');
  await page.getByRole('button', { name: 'Up' }).click();
  await seeFigure(page, 'Step', '3 of');
  t.equal(await page.locator('tbody tr').count(), 3, 'the page took over the step that it did not take');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: /^Copy/ }).click();
  await page.getByText('Copied').waitFor();
  t.equal(await page.evaluate(() => navigator.clipboard.readText()), await lastCurl(page));
});

t.test('buttons act, the picture follows, undo goes back, random draws included', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Game2048-v0?seed=5');
  const picture = page.getByRole('img', { name: /Picture of the state/ });
  await picture.waitFor();
  const views: (string | null)[] = [];
  const sources = new Set<string | null>();
  const moves = ['Left', 'Up', 'Right'];
  for (const [index, name] of moves.entries()) {
    views.push(await observation(page).textContent());
    sources.add(await picture.getAttribute('src'));
    await page.getByRole('button', { name, exact: true }).click();
    await seeFigure(page, 'Step', `${index + 1} of`);
  }
  t.equal(sources.size, 3, 'a picture for every state');
  t.ok(await picture.evaluate(image => (image as HTMLImageElement).naturalWidth > 100));
  const end = await observation(page).textContent();
  await page.getByRole('button', { name: 'Undo' }).click();
  await seeFigure(page, 'Step', '2 of');
  t.equal(await observation(page).textContent(), views[2]);
  await page.getByRole('button', { name: moves[2], exact: true }).click();
  await seeFigure(page, 'Step', '3 of');
  t.equal(await observation(page).textContent(), end, 'the same tile falls again');
  await page.locator('.state').focus();
  for (let left = 2; left >= 0; left--) {
    await page.keyboard.press('Backspace');
    await seeFigure(page, 'Step', `${left} of`);
  }
  t.equal(await observation(page).textContent(), views[0]);
  t.ok(await page.getByRole('button', { name: 'Undo' }).isDisabled());
});

t.test('text is written on one line or several; what is refused is told in full', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Countdown-v0?seed=1');
  const field = page.getByLabel('Action', { exact: true });
  const problem = page.locator('.play .problem');
  await field.fill('1 + 1');
  await page.keyboard.press('Enter');
  await seeFigure(page, 'Step', '1 of');
  await page.keyboard.press('Enter');
  await problem.waitFor();
  t.match(
    await problem.textContent(),
    /The episode is over.*terminated at step 1.*409 episode_over · trace [0-9a-f]{32}/,
  );
  await page.getByRole('button', { name: 'Undo' }).click();
  await problem.waitFor({ state: 'hidden' });

  await page.getByRole('button', { name: 'several lines' }).click();
  await field.fill('1 +\n1');
  await page.keyboard.press('Enter');
  t.equal(await field.inputValue(), '1 +\n1\n', 'Enter begins a line');
  await page.keyboard.press('Control+Enter');
  await seeFigure(page, 'Step', '1 of');
  t.match(await lastCurl(page), /-d '\{"action":"1 \+\\n1\\n"\}'$/);
});

t.test('any JSON can be sent as an action', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await page.getByText('Send any JSON').click();
  const field = page.getByLabel('Action as JSON');
  await field.fill('"Sideways"');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('cell', { name: 'not valid' }).waitFor();
  await field.fill('{"not": "an action"}');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.play .problem', { hasText: 'invalid_action' }).waitFor();
  await field.fill('{"broken"');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText(/Action as JSON is not JSON/).waitFor();
  t.equal(await field.getAttribute('aria-invalid'), 'true');
});

t.test('a reference policy plays a step or to the end', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Sokoban-v0?seed=3');
  await page.locator('.state').waitFor();
  await page.locator('.state').focus();
  await page.keyboard.press('.');
  await seeFigure(page, 'Step', '1 of');
  await page.getByRole('button', { name: 'Play on' }).click();
  await seeFigure(page, 'Episode', 'solved');
  await page.getByRole('button', { name: 'Play on' }).waitFor();
});

t.test('the server checks settings while they are written', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await page.getByText('Settings', { exact: true }).click();
  const size = page.getByLabel('size', { exact: true });
  await size.fill('1');
  const error = page.locator('.field', { has: size }).locator('.field-error');
  await error.filter({ hasText: '>= 2' }).waitFor();
  t.equal(await size.getAttribute('aria-invalid'), 'true');
  t.match(await size.getAttribute('aria-describedby'), new RegExp((await error.getAttribute('id'))!));
  await size.fill('6');
  await error.waitFor({ state: 'hidden' });
  const wrappers = page.getByLabel('Wrappers');
  await wrappers.fill('[{"name": "time_limi"}]');
  await page.getByText(/unknown wrapper "time_limi"; available: .*time_limit/).waitFor();
  await wrappers.fill('[{"name": "time_limit", "options": {"max_steps": 2}}]');
  await page.getByLabel('Options of the start').fill('{"start": [0, 0], "goal": [9, 9]}');
  const apply = page.getByRole('button', { name: 'Start over with these settings' });
  await apply.click();
  await page.locator('.setup .field-error', { hasText: '/goal: (9, 9) is outside' }).waitFor();
  await page.getByLabel('Options of the start').fill('{}');
  await page.getByLabel('split').selectOption('test');
  await apply.click();
  await page.locator('.curl', { hasText: 'time_limit' }).waitFor();
  t.equal((await observation(page).textContent())!.split('\n').length, 6);
  t.match(await lastCurl(page), /"config":\{"size":6,"split":"test"\},"wrappers":\[\{"name":"time_limit"/);
});

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
  await observation(page).waitFor();
  t.match(await lastCurl(page), /-H "authorization: Bearer \$RAGEN_TOKEN"/);
  t.notMatch(await page.locator('body').textContent(), /open sesame/);
  await page.getByRole('img', { name: /Picture of the state/ }).waitFor();
  t.equal(await page.evaluate(() => `${sessionStorage.length} ${JSON.stringify(localStorage)}`), '1 {}');
  await page.getByRole('button', { name: 'Forget' }).click();
  await page.getByText('This server wants a token.').waitFor();
  t.equal(await page.evaluate(() => sessionStorage.length), 0);
});

t.test('a session that is gone is told, and begun anew', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await observation(page).waitFor();
  const { sessions } = await ask<Schemas['SessionPage']>('GET', 'v1/sessions');
  await ask('DELETE', `v1/sessions/${sessions[0].session_id}`);
  await page.getByRole('button', { name: 'Down' }).click();
  const problem = page.locator('.play .problem');
  await problem.filter({ hasText: 'session_closed' }).waitFor();
  await page.getByRole('button', { name: 'Reset' }).click();
  await problem.waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Down' }).click();
  await seeFigure(page, 'Step', '1 of');
});

t.test('a page that is left closes its session', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await observation(page).waitFor();
  t.equal((await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions.length, 1);
  await page.getByRole('link', { name: /Sudoku/ }).click();
  await page.getByLabel('Action', { exact: true }).waitFor();
  t.same(
    (await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions.map(({ env_id }) => env_id),
    ['Sudoku-v0'],
  );
  await page.goto('about:blank');
  let open = 1;
  while (open > 0) open = (await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions.length;
  t.equal(open, 0);
});
