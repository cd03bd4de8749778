import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import t from 'tap';
import { BUNDLE, bundleEditor } from '../../install/bundle-editor.ts';
import { accessibilityProblems, lastCurl, openPlayground, seeFigure, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

t.test('the bundle of the editor equals what its packages build to', async t => {
  t.ok((await bundleEditor()) === readFileSync(BUNDLE, 'utf8'), 'npm run editor writes it');
});

/** An environment that is answered by a program, and asks for no sandbox. */
const DEFINITION = {
  kind: 'script',
  title: 'Doubling',
  instruction: 'Write a program.',
  action_space: { type: 'Text', max_length: 5000 },
  example_action: 'pass',
  source: `const task = { statement: 'Double a number.', starter: 'def double(x: int) -> int:' };
    function reset() { return { ...task, outcome: null }; }
    function step(state, action) {
      const isRight = action.includes('2 * x');
      const outcome = { passed: isRight ? 2 : 1, total: 2, failure: isRight ? '' : 'wrong result' };
      const info = { success: isRight, ...(!isRight && { failed_tests: [2] }) };
      return { state: { ...task, outcome }, reward: outcome.passed / 2, terminated: true, info };
    }
    function observe({ statement }) { return statement; }`,
};

/** Waits until the editor, of which a new one may still be loading, shows exactly this program. */
const seeProgram = (page: Page, program: string) =>
  page.waitForFunction(wanted => {
    const lines = document.querySelector('.code-editor')?.shadowRoot?.querySelectorAll('.cm-line') ?? [];
    return [...lines].map(line => line.textContent).join('\n') === wanted;
  }, program);

t.test('a program is written in an editor, sent, and kept over a reload', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await ask('POST', 'v1/envs', { env_id: 'test/Double-v0', definition: DEFINITION });
  const loaded: string[] = [];
  page.on('request', request => loaded.push(request.url()));
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Frozen lake' }).waitFor();
  await page.locator('.state .board').waitFor();
  t.notOk(
    loaded.some(url => url.includes('codemirror')),
    'nobody loads the editor who writes no program',
  );

  await page.goto(`${origin}/#/play/test%2FDouble-v0`);
  const editor = page.getByRole('textbox', { name: 'Action', exact: true });
  await seeProgram(page, 'def double(x: int) -> int:\n    ');
  await editor.focus();
  await page.keyboard.press('Control+End');
  await page.keyboard.type('return x');
  await page.keyboard.press('Control+Enter');
  await seeFigure(page, 'Episode', 'ended');
  t.match(await lastCurl(page), /def double\(x: int\) -> int:\\n {4}return x"/);
  const banner = page.getByRole('group', { name: 'End of the episode' });
  await banner.getByText('Failed test: 2').waitFor();

  await page.reload();
  await seeProgram(page, 'def double(x: int) -> int:\n    return x');
  await banner.getByRole('button', { name: 'Play again' }).click();
  await banner.waitFor({ state: 'detached' });
  await page.locator('.cm-focused').waitFor();
  await page.keyboard.press('Control+End');
  await page.keyboard.press('Backspace');
  await page.keyboard.type('2 * x');
  t.same(await accessibilityProblems(page), [], 'accessible');
  await page.getByRole('button', { name: 'Send', exact: true }).first().click();
  await seeFigure(page, 'Episode', 'solved');
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('button', { name: 'Start again' }).click();
  await seeProgram(page, 'def double(x: int) -> int:\n    ');
});

t.test('where the editor cannot be loaded, a field takes the program', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/register');
  await ask('POST', 'v1/envs', { env_id: 'test/Double-v0', definition: DEFINITION });
  await page.route(/codemirror\.mjs$/, route => route.abort());
  await page.goto(`${origin}/#/play/test%2FDouble-v0`);
  await page.getByRole('textbox', { name: 'Action', exact: true }).fill('2 * x');
  await page.keyboard.press('Control+Enter');
  await seeFigure(page, 'Episode', 'solved');
});
