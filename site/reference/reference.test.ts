import t from 'tap';
import { accessibilityProblems, browser, openPlayground, skip } from '../playground/browser.test-data.ts';

t.setTimeout(600_000);

t.test('the reference has the header of the site, and every operation', { skip }, async t => {
  const { page, origin, ask } = await openPlayground(t, 'docs');
  t.equal(page.url(), `${origin}/docs/`);
  await page.locator('.operation').first().waitFor();
  const { paths } = await ask<{ paths: { [path: string]: object } }>('GET', 'openapi.json');
  const methods = Object.values(paths).flatMap(path => Object.keys(path));
  t.equal(await page.locator('.operation').count(), methods.length);
  await page.getByRole('navigation', { name: 'Site' }).getByRole('link', { name: 'Watch' }).click();
  await page.getByRole('heading', { level: 1, name: 'Sessions' }).waitFor();
});

t.test('a search finds operations by words of their path and text', { skip }, async t => {
  const { page } = await openPlayground(t, 'docs/');
  const search = page.getByRole('searchbox', { name: 'Search operations' });
  await search.fill('SESSIONS clone');
  t.same(await page.locator('.operation').evaluateAll(all => all.map(({ id }) => id)), ['clone']);
  await search.fill('no such thing');
  await page.getByText('No operation has all of these words.').waitFor();
});

t.test('requests tried in the reference exist and succeed, as does the command', { skip }, async t => {
  const { page, origin, ask } = await openPlayground(t, 'docs/#/sessions/create');
  const operation = page.locator('#create');
  const body = JSON.parse(await operation.getByLabel('Body').inputValue());
  t.match(await ask('GET', `v1/envs/${body.env_id}`), { env_id: body.env_id });
  await operation.getByLabel('Idempotency-Key').fill("it's one");
  t.match(
    await operation.getByLabel('Command for create').textContent(),
    `curl -s ${origin}/v1/sessions \\\n  -H 'Idempotency-Key: it'\\''s one' \\\n  -H 'content-type: application/json' \\\n  -d '`,
  );
  const asked = page.waitForRequest(`${origin}/v1/sessions`);
  await operation.getByRole('button', { name: 'Send' }).click();
  t.equal((await asked).headers()['idempotency-key'], "it's one");
  const reply = operation.getByLabel('Reply to create');
  const { session_id: id } = JSON.parse((await reply.textContent())!);
  t.match(await operation.getByRole('status').textContent(), /^\s*201/);

  await page.locator('#render summary').first().click();
  const picture = page.locator('#render');
  t.equal(await picture.getByLabel('session_id').inputValue(), id, 'a session is named once');
  await picture.getByLabel('mode').selectOption('png');
  await picture.getByRole('button', { name: 'Send' }).click();
  await picture.getByRole('img', { name: 'The reply' }).waitFor();
  t.same(await accessibilityProblems(page), []);
  await page.locator('#get summary').first().click();
  await page.locator('#get').getByLabel('session_id').fill('a/../b?');
  await page.locator('#get').getByRole('button', { name: 'Send' }).click();
  t.match(await page.getByLabel('Reply to get').textContent(), /unknown_session/);
});

t.test('the token is sent, is not in the command, and is the playground’s too', { skip }, async t => {
  const { page, origin } = await openPlayground(t, 'docs/#/sessions/list');
  await page.getByLabel('Token').fill('secret-token');
  const asked = page.waitForRequest(`${origin}/v1/sessions`);
  await page.locator('#list').getByRole('button', { name: 'Send' }).click();
  t.equal((await asked).headers().authorization, 'Bearer secret-token');
  const command = await page.getByLabel('Command for list').textContent();
  t.match(command, 'Bearer $RAGEN_TOKEN');
  t.notMatch(command, 'secret-token');
  await page.goto(`${origin}/#/register`);
  t.equal(await page.getByRole('textbox', { name: 'Token' }).inputValue(), 'secret-token');
});

t.test('schemas open one in the other', { skip }, async t => {
  const { page } = await openPlayground(t, 'docs/#/sessions/batch');
  const operation = page.locator('#batch');
  for (const name of ['BatchItem[]', 'BatchItem', 'StepItem']) {
    await operation.locator('summary', { has: page.getByText(name, { exact: true }) }).click();
  }
  await operation.getByRole('rowheader', { name: 'session_id required' }).waitFor();
});

t.test('no document, no silence', { skip }, async t => {
  const { page, origin } = await openPlayground(t, '#/register');
  await page.route('**/openapi.json', route => route.fulfill({ status: 503, body: '' }));
  await page.goto(`${origin}/docs/`);
  await page.getByText('The OpenAPI document did not come: status 503.').waitFor();
});

t.test('the reference follows the theme of the system', { skip }, async t => {
  const context = await (await browser()).newContext({ colorScheme: 'dark' });
  t.teardown(() => context.close());
  const { origin } = await openPlayground(t, '#/register');
  const page = await context.newPage();
  await page.goto(`${origin}/docs/`);
  await page.locator('.operation').first().waitFor();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  await page.emulateMedia({ colorScheme: 'light' });
  t.not(await background(), dark);
});
