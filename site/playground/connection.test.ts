import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { freePort } from '../../test/free-port.test-data.ts';
import { openPlayground, seeBoard, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

t.test('the page says when the server goes away, and reconnects when it is back', { skip }, async t => {
  const port = await freePort();
  const { page, server } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7', { port });
  await seeBoard(page);
  await server.close();
  await page.getByRole('button', { name: 'Down' }).click();
  await page.locator('.banner', { hasText: 'The server does not answer.' }).waitFor();
  await page.locator('.play .problem', { hasText: 'The server does not answer.' }).waitFor();
  t.equal(await page.locator('.connection').textContent(), 'no answer');

  const next = await createApp({ logLevel: 'silent' });
  t.teardown(() => next.server.close());
  await next.server.listen({ host: '127.0.0.1', port });
  await page.locator('.connection', { hasText: 'connected' }).waitFor();
  t.ok(await page.locator('.banner').isHidden());
  await page.getByRole('button', { name: 'Down' }).click();
  await page.locator('.play .problem', { hasText: 'unknown_session' }).waitFor();
  await page.getByRole('button', { name: 'Reset' }).click();
  await page.getByRole('button', { name: 'Down' }).click();
  await page.locator('.figures', { hasText: '1 of 100' }).waitFor();
});

t.test('what cannot be opened while the server is away is opened when it is back', { skip }, async t => {
  const port = await freePort();
  const { page, server } = await openPlayground(t, '#/register', { port });
  await page.locator('.register-view option').first().waitFor({ state: 'attached' });
  await server.close();
  await page.getByRole('link', { name: 'Play', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'Play' }).waitFor();
  const problem = page.locator('.play-view .problem');
  await problem.waitFor();
  t.equal(await problem.count(), 1, 'it is said once');
  t.equal(await page.getByText('What was done').count(), 0, 'nothing was');

  const next = await createApp({ logLevel: 'silent' });
  t.teardown(() => next.server.close());
  await next.server.listen({ host: '127.0.0.1', port });
  await seeBoard(page);
  t.equal(await problem.count(), 0);
});

t.test('a server that shuts down says so', { skip }, async t => {
  const { page, sessions } = await openPlayground(t, '#/play/FrozenLake-v0?seed=7');
  await seeBoard(page);
  sessions.shutdown.drain();
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.locator('.banner', { hasText: 'shutting down' }).waitFor();
  await page.getByRole('link', { name: /Sokoban/ }).click();
  await page.locator('.problem', { hasText: '503 draining' }).waitFor();
  t.equal(await page.locator('.connection').textContent(), 'shutting down');
});
