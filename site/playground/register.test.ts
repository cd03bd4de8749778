import type { Page } from 'playwright-core';
import t from 'tap';
import { until } from '../../test/until.test-data.ts';
import type { Schemas } from '../player/wire.ts';
import { openPlayground, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

const register = (page: Page) => page.getByRole('button', { name: 'Check and register' }).click();
const definition = (page: Page) => page.getByLabel('Definition', { exact: true });
const selection = (page: Page, label = 'Definition') =>
  page.getByLabel(label, { exact: true }).evaluate(area => {
    const { value, selectionStart, selectionEnd } = area as HTMLTextAreaElement;
    return value.slice(selectionStart, selectionEnd);
  });

/** Edits a field as its user would. */
async function edit(page: Page, label: string, change: (text: string) => string): Promise<void> {
  const field = page.getByLabel(label, { exact: true });
  await field.fill(change(await field.inputValue()));
}

t.test('the table of the example is registered and played', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/register');
  await page.getByLabel('Start from').selectOption('tabular');
  await register(page);
  await page.getByText('accepted').waitFor();
  const report = page.locator('.report');
  t.match(
    await report.textContent(),
    /demo\/Crossing-v0, tabular, revision 1\..*\d+ episodes of 1 configuration, \d+ steps/,
  );
  t.match(await report.textContent(), /lost when the server stops/);
  await page.getByRole('link', { name: 'Play it' }).click();
  await page.getByRole('heading', { level: 1, name: 'River crossing' }).waitFor();
  await page.locator('.state:focus').waitFor();
  await page.keyboard.press('2');
  await page.locator('.figures', { hasText: 'solved' }).waitFor();
  t.equal(await page.locator('.observation').textContent(), 'You have crossed the river.');
  t.match(await ask<Schemas['EnvironmentList']>('GET', 'v1/envs?search=river'), {
    environments: [{ env_id: 'demo/Crossing-v0' }],
  });
});

t.test('text written before the examples load stays', { skip }, async t => {
  const { page } = await openPlayground(t, '#/watch');
  const held = Promise.withResolvers<void>();
  await page.route('**/openapi.json', async route => {
    await held.promise;
    await route.continue();
  });
  await page.getByRole('link', { name: 'Register' }).click();
  await edit(page, 'Environment id', () => 'mine/Early-v0');
  held.resolve();
  await page.locator('option').first().waitFor({ state: 'attached' });
  t.equal(await page.getByLabel('Environment id').inputValue(), 'mine/Early-v0');
});

t.test('the editor marks faults of a definition', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/register');
  await page.locator('option').first().waitFor({ state: 'attached' });
  const problem = page.locator('.problem', { hasText: 'trace' });

  await edit(page, 'Definition', text => text.replace('"probability": 0.6', '"probability": 7'));
  await register(page);
  await problem.filter({ hasText: 'must be <= 1' }).waitFor();
  await page
    .getByRole('button', { name: '/definition/states/near bank/transitions/Swim/0/probability' })
    .click();
  t.equal(await selection(page), '7');

  await edit(page, 'Definition', text => text.replace('"probability": 7', '"probability": 0.7'));
  await register(page);
  await problem.filter({ hasText: '1.1' }).waitFor();

  await edit(page, 'Definition', text => text.replace('"near bank": 1', '"near bank": 1,,'));
  await register(page);
  await page.locator('.field-error', { hasText: 'Definition is not JSON' }).waitFor();
  t.equal(await definition(page).getAttribute('aria-invalid'), 'true');
  t.equal(await selection(page), ',');

  await edit(page, 'Definition', text => text.replace(',,', '').replace('0.7', '0.6'));
  await edit(page, 'Environment id', () => 'no id');
  await register(page);
  await problem.filter({ hasText: 'an environment id reads' }).waitFor();
  await page.getByRole('button', { name: '/env_id' }).click();
  t.equal(await page.getByLabel('Environment id').evaluate(field => field === document.activeElement), true);
  t.same(
    (await ask<Schemas['EnvironmentList']>('GET', 'v1/envs?search=river')).environments,
    [],
    'nothing was registered',
  );
});

t.test(
  'a script is written, refused with the checker’s findings, mended, replaced, removed',
  { skip },
  async t => {
    const { page, ask } = await openPlayground(t, '#/register');
    await page.getByLabel('Start from').selectOption('script');
    const source = 'Source in JavaScript';
    const right = await page.getByLabel(source).inputValue();
    t.match(right, /function step\(state, action, rng\) \{/);
    await edit(page, source, text =>
      text.replace('1 + rng.integer(config.largest)', '1 + Math.floor(9 * Math.random())'),
    );
    await register(page);
    await page.locator('.problem', { hasText: 'no_exceptions: reset threw' }).waitFor();
    t.match(
      await page.locator('.problem').last().textContent(),
      /Math\.random is not available: draw from rng/,
    );

    await page.getByRole('button', { name: 'line 3' }).click();
    t.match(await selection(page, source), /^ {2}return \{ secret: 1 \+ Math\.floor/);

    await edit(page, source, () => right.replace('function step(', 'function step(('));
    await register(page);
    await page.locator('.problem', { hasText: 'SyntaxError' }).waitFor();
    await page.getByRole('button', { name: 'line 6' }).click();
    t.match(await selection(page, source), /^function step\(\(/);

    await edit(page, source, () => right);
    await register(page);
    await page.getByText('accepted').waitFor();
    await register(page);
    await page.locator('.problem', { hasText: 'environment_exists' }).waitFor();
    await edit(page, source, () => right.replace("'Right!'", "'Yes!'"));
    await page.getByRole('button', { name: 'Replace' }).click();
    await page.locator('.report', { hasText: 'revision 2' }).waitFor();

    await edit(page, source, () => '');
    await page.getByRole('button', { name: 'Load' }).click();
    await page.getByText('Loaded demo/Guess-v0').waitFor();
    t.match(await page.getByLabel(source).inputValue(), /'Yes!'/);

    await page.getByRole('link', { name: 'Play', exact: true }).click();
    await page.getByRole('link', { name: /demo\/Guess-v0/ }).click();
    const action = page.getByLabel('Action', { exact: true });
    await page.locator('.board-text', { hasText: 'Guess.' }).waitFor();
    await action.fill('1000');
    await page.keyboard.press('Enter');
    await page.locator('.board-text', { hasText: 'Too high.' }).waitFor();
    t.match(await page.locator('#live').textContent(), /Step 1, 1000: reward 0, return 0\. Too high\.$/);

    await page.getByRole('link', { name: 'Register' }).click();
    // An environment is not removed while it is played.
    await until(async () => (await ask<Schemas['SessionPage']>('GET', 'v1/sessions')).sessions.length === 0);
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('button', { name: 'Really remove demo/Guess-v0?' }).click();
    await page.getByText('demo/Guess-v0 was removed.').waitFor();
    t.same((await ask<Schemas['EnvironmentList']>('GET', 'v1/envs?search=guess')).environments, []);
  },
);
