import t from 'tap';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { movedClock } from '../../test/app.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import type { Environment, Replay, Session, StepResult } from '../player/wire.ts';
import {
  figure,
  observation,
  openPlayground,
  type Playground,
  seeBoard,
  seeFigure,
  skip,
} from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

type Ask = Playground['ask'];

/** A session in which actions were taken, and the observations that came. */
async function play(ask: Ask, envId: string, actions: readonly (string | number)[], more: object = {}) {
  const session = await ask<Session>('POST', 'v1/sessions', { env_id: envId, seed: 3, ...more });
  const observations = [session.observation];
  const act = async (action: string | number) => {
    const result = await ask<StepResult>('POST', `v1/sessions/${session.session_id}/step`, { action });
    observations.push(result.observation);
  };
  for (const action of actions) await act(action);
  return { id: session.session_id, observations, act };
}

t.test('a session that is not there has its error, and nothing to replay', { skip }, async t => {
  const { page } = await openPlayground(t, '#/watch/nothing');
  await page.getByText('No such session').waitFor();
  t.equal(await page.getByRole('button', { name: 'Replay' }).count(), 0);
});

t.test('a card says how its episode ended, in the words of its environment', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/watch');
  await page.getByText('No session is open here.').waitFor();
  const deterministic = { config: { preset: 'deterministic' } };
  const { id } = await play(ask, 'FrozenLake-v0', [], { seed: 7, ...deterministic });
  const card = page.locator('.card');
  await card.getByText('playing').waitFor();
  let end = '';
  for (const action of ['Right', 'Down', 'Right', 'Down']) {
    const { info, terminated } = await ask<StepResult>('POST', `v1/sessions/${id}/step`, { action });
    end = String(info.ended_by);
    if (terminated) break;
  }
  const { ends } = await ask<{ ends: { [name: string]: string } }>('GET', 'v1/envs/FrozenLake-v0');
  t.ok(ends[end].includes(' '), ends[end]);
  await card.getByText(ends[end], { exact: true }).waitFor();
});

t.test(
  'sessions appear as they open, move as they are stepped, and stay after their end',
  { skip },
  async t => {
    // What has ended is to be seen for a minute, by this clock.
    const parts = { clock: movedClock(() => 1_000_000_000_000) };
    const { page, ask, origin } = await openPlayground(t, '#/watch', { parts });
    await page.getByText('No session is open here.').waitFor();
    const first = await play(ask, 'Sokoban-v0', ['Up'], { group_id: 'g-one' });
    const card = page.locator('.card', { hasText: 'Sokoban-v0' });
    await card.getByText('1 of 100').waitFor();
    await first.act('Left');
    await card.getByText('2 of 100').waitFor();
    t.match(await card.textContent(), /playing.*Return−0\.2Leftgroup g-one/);
    const lake = await play(ask, 'FrozenLake-v0', [3]);
    await page.locator('.card').nth(1).waitFor();
    t.match(
      await page.locator('.card h2').allTextContents(),
      ['FrozenLake-v0', 'Sokoban-v0'],
      'newest first',
    );
    const numbered = page.locator('.card', { hasText: 'FrozenLake-v0' }).locator('.card-action');
    await numbered.getByText('Right', { exact: true }).waitFor();
    await page.getByLabel('Environment').selectOption('FrozenLake-v0');
    await card.waitFor({ state: 'detached' });
    await page.getByLabel('Environment').selectOption('');
    await page.getByLabel('Group').fill('g-one');
    await page.locator('.card', { hasText: 'FrozenLake' }).waitFor({ state: 'detached' });
    await page.getByLabel('Group').fill('');
    await card.waitFor();
    await ask('DELETE', `v1/sessions/${first.id}`);
    await card.getByText('left', { exact: true }).waitFor();
    await page.getByText('1 open, 1 ended in the last minute').waitFor();
    await card.getByRole('link').click();
    await seeFigure(page, 'Step', '2 of');
    t.equal(
      await observation(page).textContent(),
      first.observations[2],
      'an ended session can be looked at',
    );
    await page.getByRole('slider', { name: 'Step' }).focus();
    await page.keyboard.press('Home');
    await seeFigure(page, 'Step', '0 of');
    t.equal(await observation(page).textContent(), first.observations[0]);
    await page.goto(`${origin}/#/watch/${lake.id}`);
    await seeFigure(page, 'Step', '1 of');
    t.match(await figure(page, 'Action').textContent(), /Right/, 'a number has its name');
  },
);

t.test(
  'the wall counts all sessions, turns pages, and keeps its filters in the address',
  { skip },
  async t => {
    const { page, ask, origin } = await openPlayground(t, '#/watch');
    await ask<Session>('POST', 'v1/sessions', { env_id: 'FrozenLake-v0', count: 207, group_id: 'many' });
    await ask<Session>('POST', 'v1/sessions', { env_id: 'Sokoban-v0' });
    await page.getByText('208 open, 0 ended in the last minute').waitFor();
    t.equal(await page.locator('.card').count(), 60);
    await page.getByRole('button', { name: 'Older' }).click();
    await page.getByText('61 to 120 of 208').waitFor();
    await page.goto(`${origin}/#/watch?page=4`);
    await page.getByText('181 to 208 of 208').waitFor();
    t.ok(await page.getByRole('button', { name: 'Older' }).isDisabled());
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.getByText('121 to 180 of 208').waitFor();
    t.ok(page.url().endsWith('#/watch?page=3'), page.url());
    await page.getByLabel('Group').fill('many');
    await page.getByText('207 open').waitFor();
    t.ok(page.url().endsWith('#/watch?group=many'), page.url());
    await page.goto(`${origin}/#/watch?env=Sokoban-v0`);
    await page.getByText('1 open').waitFor();
    t.equal(await page.getByLabel('Environment').inputValue(), 'Sokoban-v0');
  },
);

t.test(
  'cards have the chosen size, which the address keeps; one card is no wider than others',
  { skip },
  async t => {
    const { page, ask } = await openPlayground(t, '#/watch?size=enormous');
    await play(ask, 'Sokoban-v0', []);
    const card = page.locator('.card');
    await card.waitFor();
    const width = async () => Math.round((await card.boundingBox())!.width);
    const medium = await width();
    t.ok(medium < 400, `an unknown size is the usual one: ${medium} px`);
    const sizes = page.getByLabel('Cards');
    await sizes.selectOption('large');
    await until(async () => (await width()) > medium);
    t.match(page.url(), /size=large/);
    await page.reload();
    await card.waitFor();
    t.ok((await width()) > medium, 'after a reload');
    await sizes.selectOption('small');
    await until(async () => (await width()) < medium);
    await sizes.selectOption('medium');
    await until(async () => (await width()) === medium);
    t.notMatch(page.url(), /size/);
  },
);

t.test('every view shows the step limit of the session, not of its environment', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/watch');
  const { max_episode_steps: general } = await ask<Environment>('GET', 'v1/envs/FrozenLake-v0');
  t.not(general, 12);
  const config = { max_steps: 12 };
  const { session_id: id } = await ask<Session>('POST', 'v1/sessions', { env_id: 'FrozenLake-v0', config });
  await page.locator('.card').getByText('0 of 12').waitFor();
  await page.locator('.card').getByRole('link').click();
  await seeFigure(page, 'Step', '0 of 12');
  t.ok(page.url().endsWith(`#/watch/${id}`));
  await page.goto(`${origin}/#/play/FrozenLake-v0?config=${encodeURIComponent(JSON.stringify(config))}`);
  await seeFigure(page, 'Step', '0 of 12');
});

t.test('a card that is pressed stays where it is until the click is done', { skip }, async t => {
  const { page, ask } = await openPlayground(t, '#/register');
  const { id } = await play(ask, 'Sokoban-v0', []);
  const frames: string[] = [];
  page.on('websocket', socket => socket.on('framereceived', ({ payload }) => frames.push(String(payload))));
  await page.getByRole('link', { name: 'Watch' }).click();
  await page.locator('.card').getByRole('link').hover();
  await page.mouse.down();
  const later = await play(ask, 'FrozenLake-v0', []);
  await until(() => frames.some(frame => frame.includes(later.id)));
  await page.mouse.up();
  await page.waitForURL(url => url.hash === `#/watch/${id}`);
  await seeFigure(page, 'Step', '0 of');
});

t.test('a session is followed live, stepped through, and left as it was', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/register');
  const { id, observations, act } = await play(ask, 'Sokoban-v0', ['Up', 'Left', 'Down', 'Right']);
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '4 of');
  await act('Left');
  await seeFigure(page, 'Step', '5 of');
  t.equal(await observation(page).textContent(), observations[5], 'without asking for it');
  const slider = page.getByRole('slider', { name: 'Step' });
  await slider.focus();
  await page.keyboard.press('Home');
  t.equal(await slider.getAttribute('aria-valuetext'), 'the start');
  for (let step = 0; step <= 5; step++) {
    await seeFigure(page, 'Step', `${step} of`);
    t.equal(await observation(page).textContent(), observations[step]);
    await page.keyboard.press('ArrowRight');
  }
  t.match(await slider.getAttribute('aria-valuetext'), /^5 of 5: Left, reward −0\.1$/);
  t.ok(!(await page.getByLabel('Follow live').isChecked()), 'who chose a step is left there');
  await act('Up');
  await page.locator('.slider input[max="6"]').waitFor();
  await slider.press('Home');
  await slider.press('ArrowRight');
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  await seeFigure(page, 'Step', '6 of');
  t.match(await ask('GET', `v1/sessions/${id}`), { step: 6, episode_id: `${id}.1` });
});

t.test('an episode is played on from any step; the address opens exactly that', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/register');
  const { id, observations } = await play(ask, 'Game2048-v0', ['Left', 'Up', 'Right', 'Down'], {
    config: { size: 5 },
  });
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '4 of');
  await page.getByRole('button', { name: 'Back' }).click();
  await seeFigure(page, 'Step', '3 of');
  await page.getByRole('link', { name: 'Play on from here' }).click();
  await page.getByRole('button', { name: 'Down', exact: true }).waitFor();
  await seeFigure(page, 'Step', '3 of');
  t.equal(await observation(page).textContent(), observations[3]);
  const address = page.url();
  await page.getByRole('button', { name: 'Down', exact: true }).click();
  await seeFigure(page, 'Step', '4 of');
  t.equal(await observation(page).textContent(), observations[4], 'the same draws');
  await page.goto('about:blank');
  await page.goto(address);
  await seeBoard(page);
  await seeFigure(page, 'Step', '3 of');
  t.equal(await observation(page).textContent(), observations[3], 'configuration, seed and state');
  t.equal((await ask<Session>('GET', `v1/sessions/${id}`)).step, 4);
});

t.test('an episode with its own chance is played on with it', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/register');
  const { id, act } = await play(ask, 'Game2048-v0', ['Left', 'Up'], { dynamics_seed: 4 });
  const path = `v1/sessions/${id}`;
  const { snapshot_id } = await ask<{ snapshot_id: string }>('POST', `${path}/snapshot`);
  await ask('POST', `${path}/restore`, { snapshot_id, dynamics_seed: 9 });
  for (const action of ['Right', 'Down', 'Left']) await act(action);
  const shown = (await ask<Replay>('GET', `${path}/replay`)).records.map(record => record.observation);
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '5 of');
  await page.getByRole('button', { name: 'Back' }).click();
  await seeFigure(page, 'Step', '4 of');
  await page.getByRole('link', { name: 'Play on from here' }).click();
  await page.getByRole('button', { name: 'Left', exact: true }).waitFor();
  await seeFigure(page, 'Step', '4 of');
  t.equal(await observation(page).textContent(), shown[4]);
  t.match(page.url(), /dynamics_seed=4/);
  await page.getByRole('button', { name: 'Left', exact: true }).click();
  await seeFigure(page, 'Step', '5 of');
  t.equal(await observation(page).textContent(), shown[5], 'the draws of the changed stream');
  await page.reload();
  await seeBoard(page);
  await seeFigure(page, 'Step', '5 of');
  t.equal(await observation(page).textContent(), shown[5], 'also from its address');
});

t.test('the replay shows a model’s whole response', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/register');
  const { session_id: id } = await ask<Session>('POST', 'v1/sessions', {
    env_id: 'FrozenLake-v0',
    wrappers: [{ name: 'action_text' }],
  });
  const action = '<think>The goal lies below me,\nso I go down.</think><answer>Down</answer>';
  await ask('POST', `v1/sessions/${id}/step`, { action });
  await page.goto(`${origin}/#/watch/${id}`);
  await seeFigure(page, 'Step', '1 of');
  t.equal(await page.getByRole('region', { name: 'Action in full' }).textContent(), action);
  t.match(await figure(page, 'Action').textContent(), /^<think>/);
});

t.test('the page says that a session does not exist', { skip }, async t => {
  const { page } = await openPlayground(t, '#/watch/s-nowhere');
  await page.locator('.problem', { hasText: 'unknown_session' }).waitFor();
  t.ok(await page.getByText('Play on from here').isHidden());
});

t.test('with tokens the wall shows what the token may see', { skip }, async t => {
  const tokens = JSON.stringify(
    ['anna', 'ben'].map(name => ({ name, sha256: hashToken(`${name}-secret`), scopes: ['play'] })),
  );
  const { page, origin } = await openPlayground(t, '#/watch', { settings: { tokens } });
  for (const [name, envId] of [
    ['anna', 'Sokoban-v0'],
    ['ben', 'FrozenLake-v0'],
  ]) {
    await fetch(`${origin}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${name}-secret` },
      body: JSON.stringify({ env_id: envId }),
    });
  }
  const refusal = page.getByRole('alert').filter({ hasText: 'Write a token of this server' });
  await refusal.waitFor();
  t.equal(await page.getByText('Asking the server').count(), 0, 'it has answered');
  await page.getByRole('textbox', { name: 'Token' }).fill('anna-secret');
  await page.keyboard.press('Enter');
  await page.locator('.card', { hasText: 'Sokoban-v0' }).waitFor();
  t.equal(await page.locator('.card').count(), 1);
  t.equal(await refusal.count(), 0);
  await page.getByRole('button', { name: 'Forget' }).click();
  await refusal.waitFor();
  t.equal(await page.locator('.card').count(), 0, 'what the token showed is forgotten with it');
});
