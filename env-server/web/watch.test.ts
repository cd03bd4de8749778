import t from 'tap';
import { until } from '../../test/until.test-data.ts';
import { observation, openPlayground, type Playground, seeFigure, skip } from './browser.test-data.ts';
import type { Schemas, Session, StepResult } from './page/client/wire.ts';

/** A browser on a busy machine. */
t.setTimeout(300_000);

/** Somebody else's session: seeds and actions give the same states as long as the environment stays as it is. */
async function play(ask: Playground['ask'], envId: string, actions: string[]) {
  const session = await ask<Session>('POST', 'v1/sessions', { env_id: envId, seed: 3 });
  const observations = [session.observation];
  const act = async (action: string) => {
    const result = await ask<StepResult>('POST', `v1/sessions/${session.session_id}/step`, { action });
    observations.push(result.observation);
  };
  for (const action of actions) await act(action);
  return { id: session.session_id, observations, act };
}

t.test('sessions are listed as they come and go', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/watch');
  await page.getByText('No session is open here.').waitFor();
  const { id } = await play(ask, 'Sokoban-v0', ['Up', 'Left']);
  await play(ask, 'FrozenLake-v0', []);
  const rows = page.locator('tbody tr');
  await rows.nth(1).waitFor();
  t.match(
    await rows.nth(0).textContent(),
    new RegExp(`^${id}Sokoban-v0–23`),
    'id, environment, no group, step, seed',
  );
  await page.getByLabel('Environment').selectOption('FrozenLake-v0');
  await rows.filter({ hasText: 'Sokoban' }).waitFor({ state: 'detached' });
  t.equal(await rows.count(), 1);
  await page.getByLabel('Environment').selectOption('');
  await page.getByRole('link', { name: id }).click();
  await seeFigure(page, 'Step', '2 of');
  await page.getByRole('link', { name: /All sessions/ }).click();
  await ask('DELETE', `v1/sessions/${id}`);
  await rows.filter({ hasText: id }).waitFor({ state: 'detached' });
});

t.test('long lists are read page by page', { skip }, async t => {
  const { page, ask } = await openPlayground(t);
  const { sessions = [] } = await ask<Schemas['CreatedSession']>('POST', 'v1/sessions', {
    env_id: 'FrozenLake-v0',
    count: 60,
  });
  await page.getByRole('link', { name: 'Watch' }).click();
  const rows = page.locator('tbody tr');
  await rows.nth(49).waitFor();
  await page.getByRole('button', { name: 'Next page' }).click();
  await page.getByRole('link', { name: sessions[59].session_id }).waitFor();
  t.ok(await page.getByRole('button', { name: 'Next page' }).isHidden());
  await page.getByRole('button', { name: 'First page' }).click();
  await rows.nth(49).waitFor();
});

t.test(
  'a session is followed live, stepped through with its pictures, and left as it was',
  { skip },
  async t => {
    const { page, ask, origin } = await openPlayground(t);
    const { id, observations, act } = await play(ask, 'Sokoban-v0', ['Up', 'Left', 'Down', 'Right']);
    await page.goto(`${origin}/#/watch/${id}`);
    await seeFigure(page, 'Step', '4 of');
    t.equal(await observation(page).textContent(), observations[4]);

    await act('Left');
    await seeFigure(page, 'Step', '5 of');
    t.equal(await observation(page).textContent(), observations[5], 'without asking for it');

    const slider = page.getByRole('slider', { name: 'Step' });
    const picture = page.getByRole('img', { name: /Picture of the state/ });
    const pictures: (string | null)[] = [];
    await slider.focus();
    await page.keyboard.press('Home');
    await seeFigure(page, 'Step', '0 of');
    t.equal(await slider.getAttribute('aria-valuetext'), 'the start');
    for (let step = 0; step <= 5; step++) {
      await seeFigure(page, 'Step', `${step} of`);
      t.equal(await observation(page).textContent(), observations[step]);
      if (step > 0) {
        t.match(
          await slider.getAttribute('aria-valuetext'),
          new RegExp(`^${step} of 5: (Up|Left|Down|Right), reward −0\\.1$`),
        );
      }
      await page.locator(`img[data-step="${step}"]`).waitFor();
      pictures.push(await picture.getAttribute('src'));
      await page.keyboard.press('ArrowRight');
    }
    const png = await fetch(`${origin}/v1/sessions/${id}/render?mode=png`);
    const base64 = Buffer.from(await png.arrayBuffer()).toString('base64');
    t.equal(pictures[5], `data:image/png;base64,${base64}`, 'the last one is the session’s own');
    t.not(pictures[0], pictures[5]);

    t.ok(!(await page.getByLabel('Follow live').isChecked()), 'who chose a step is left there');
    await page.getByRole('button', { name: 'First' }).click();
    await act('Up');
    await page.getByRole('button', { name: 'Replay' }).click();
    await seeFigure(page, 'Step', '6 of');
    t.match(await ask('GET', `v1/sessions/${id}`), { step: 6, episode_id: `${id}.1` });

    await page.getByRole('link', { name: /All sessions/ }).click();
    await page.getByRole('link', { name: id }).waitFor();
    // The first page's own session is closed when it is left.
    const rows = page.locator('tbody tr');
    await until(async () => (await rows.count()) === 1);
    t.equal(await rows.count(), 1, 'the session that the pictures came from is not shown');
  },
);

t.test('an episode is played on from any step, in a session of one’s own', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t);
  const { id, observations } = await play(ask, 'Game2048-v0', ['Left', 'Up', 'Right', 'Down']);
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '4 of');
  await page.getByRole('button', { name: 'Back' }).click();
  await page.getByRole('button', { name: 'Play on from here' }).click();
  await page.getByRole('button', { name: 'Down', exact: true }).waitFor();
  await seeFigure(page, 'Step', '3 of');
  t.equal(await observation(page).textContent(), observations[3]);
  await page.getByRole('button', { name: 'Down', exact: true }).click();
  await seeFigure(page, 'Step', '4 of');
  t.equal(await observation(page).textContent(), observations[4], 'the same draws');
  t.equal((await ask<Session>('GET', `v1/sessions/${id}`)).step, 4);
});

t.test('what a model wrote is shown in full', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t);
  const { session_id: id } = await ask<Session>('POST', 'v1/sessions', {
    env_id: 'FrozenLake-v0',
    wrappers: [{ name: 'action_text' }],
  });
  const action = '<think>The goal lies below me,\nso I go down.</think><answer>Down</answer>';
  await ask('POST', `v1/sessions/${id}/step`, { action });
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '1 of');
  t.equal(await page.getByRole('region', { name: 'Action in full' }).textContent(), action);
});

t.test('a session that is not there is told', { skip }, async t => {
  const { page } = await openPlayground(t, '#/watch/s-nowhere');
  await page.locator('.problem', { hasText: 'unknown_session' }).waitFor();
  t.ok(await page.getByRole('button', { name: 'Play on from here' }).isDisabled());
});
