import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import t from 'tap';
import { createApp } from '../../env-server/app.ts';
import { RUN_FILES, type RunStatus } from '../../shared/run-folder/run-files.ts';
import { ATIF_DOCUMENT } from '../../site/compute/formats/samples.test-data.ts';
import { accessibilityProblems, overflow, seeLooks, skip } from '../../site/playground/browser.test-data.ts';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';
import { allDiagnostics, openPage, serveDashboard, serveFiles } from './dashboard.test-data.ts';
import { exportSite } from './export.ts';

t.setTimeout(900_000);

const EPISODE = '#/run/lake-1/episode?file=train-000030&index=1';
/** Every view, and what is there when it is ready. */
const VIEWS = [
  ['#/', 'tbody a'],
  ['#/run/lake-1', '.health'],
  ['#/run/lake-1/replay', '.frame .board'],
  ['#/run/lake-1/episodes', '.member'],
  [EPISODE, '.token.amount'],
  ['#/run/lake-1/filter', '.plane circle'],
  ['#/run/lake-1/system', '.uplot canvas'],
  ['#/run/lake-1/log', 'main .code-box'],
  ['#/run/lake-1/settings', 'tbody td'],
  ['#/compare?runs=lake-1,lake-2', '.uplot canvas'],
  ['#/leaderboard', 'tbody a'],
] as const;

/** Measurements of a policy that acts without thinking, in place of those of thoughts. */
const acting = () => ({
  'collapse_first_turn_sample/mi_seq_share': undefined,
  'collapse_first_turn_sample/conditional_entropy_est': undefined,
  'collapse_action_first_turn_sample/mi_seq_share': 0.4,
});

/** Two runs that differ by seed, one that failed, one that runs. */
function sampleRuns(root: string): string {
  const starting = { stage: 'training', state: 'running', eta_s: 12, pid: process.pid } as const;
  writeSampleRun(root, 'lake-1');
  writeSampleRun(root, 'lake-2', { seed: 2, more: acting });
  writeSampleRun(root, 'broken', {
    steps: 3,
    status: { state: 'failed', last_error: { time: 'x', text: 'no <b>room</b> on the disk' } },
  });
  writeSampleRun(root, 'live', { steps: 10, status: { ...starting, updated_at: new Date().toISOString() } });
  return root;
}

t.test('every view is accessible and fits, light on a phone and dark on a wide screen', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/`);
  for (const [hash, ready] of VIEWS) {
    await page.goto(`${origin}/runs/${hash}`);
    await page.locator(ready).first().waitFor({ state: 'attached' });
    for (const [colorScheme, width, height] of [
      ['light', 390, 844],
      ['light', 1024, 768],
      ['dark', 1440, 900],
    ] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height });
      const look = `${hash}, ${colorScheme}, ${width} px`;
      t.ok((await overflow(page)) <= 0, `${look}: no scrolling sideways`);
      if (width !== 1024) t.same(await accessibilityProblems(page), [], `${look}: accessible`);
    }
  }
});

t.test('a result of the leaderboard has one line on a phone; its command unfolds', { skip }, async t => {
  const root = t.testdir();
  writeSampleRun(root, 'lake-1');
  const folder = join(root, 'lake-1', RUN_FILES.evaluations);
  mkdirSync(folder, { recursive: true });
  const command =
    'evaluate runs/lake-1 validation.episodes=256 --policy checkpoint --policy random --attempts 8';
  const pass_at = { 1: 0.25, 2: 0.4, 4: 0.5, 8: 0.75 };
  const result = { policy: 'random', mode: 'reference', tag: 'Lake', success: 0.25, pass_at };
  const document = { command, date: '2026-11-27T10:00:00.000Z', rows: [result] };
  writeFileSync(join(folder, '2026-11-27.json'), JSON.stringify(document));
  const origin = await serveDashboard(t, { runs: root });
  const viewport = { width: 390, height: 844 };
  const page = await openPage(t, `${origin}/runs/#/leaderboard`, { viewport });
  const rows = page.locator('tbody tr');
  await rows.nth(1).waitFor();
  for (const row of await rows.all()) {
    const { height } = (await row.boundingBox())!;
    t.ok(height < 48, `${height} px: ${await row.textContent()}`);
  }
  t.equal(await page.getByText(command).isVisible(), false);
  await page.getByText('command', { exact: true }).click();
  await page.getByText(command).waitFor();
});

t.test('the head of a run with a long name keeps its parts apart on a phone', { skip }, async t => {
  const root = t.testdir();
  const name = 'sokoban-demonstrations-with-eight-heads-seed-0';
  writeSampleRun(root, name);
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/run/${name}`, { viewport: { width: 390, height: 844 } });
  await page.locator('.run-success').waitFor();
  const boxes = await page.locator('.run-bar > :is(h1, .chip, .run-success)').evaluateAll(parts =>
    parts.map(part => {
      const { left, right } = part.getBoundingClientRect();
      return { left, right };
    }),
  );
  t.equal(boxes.length, 3);
  for (const [i, { left }] of boxes.slice(1).entries()) {
    t.ok(left >= boxes[i].right, `${left} is right of ${boxes[i].right}`);
  }
  await page.goto(`${origin}/runs/#/run/${name}/settings`);
  await page.reload();
  await page.locator('.settings td').first().waitFor();
  const tab = (await page.getByRole('link', { name: 'Settings' }).boundingBox())!;
  t.ok(tab.x > 0 && tab.x + tab.width < 390, `the tab of the view is in sight: from ${tab.x} px`);
  t.ok(
    await page
      .locator('.settings td')
      .evaluateAll(cells => cells.every(cell => cell.getBoundingClientRect().right < innerWidth)),
    'and so is every value',
  );
});

t.test('links within a line of an episode are 24 px high on a phone', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/${EPISODE}`, { viewport: { width: 390, height: 844 } });
  const least = page.getByRole('button', { name: 'least likely token' });
  await least.waitFor();
  const links = [...(await page.getByRole('navigation', { name: 'Position' }).locator('a').all()), least];
  t.equal(links.length, 4);
  for (const link of links) {
    const { height } = (await link.boundingBox())!;
    t.ok(height >= 24, `${height} px: ${await link.textContent()}`);
  }
});

t.test('a comparison of runs of different lengths names what its legend shows', { skip }, async t => {
  const root = t.testdir();
  writeSampleRun(root, 'long');
  writeSampleRun(root, 'short', { seed: 2, steps: 10 });
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/compare?runs=long,short&seeds=apart`);
  await page
    .locator('.u-legend', { hasText: /step\s*last/ })
    .first()
    .waitFor();
  await page.locator('.u-over').first().hover();
  await page
    .locator('.u-legend', { hasText: /step\s*\d/ })
    .first()
    .waitFor();
  for (const select of await page.locator('main select').all()) {
    const { width } = (await select.boundingBox())!;
    t.ok(width <= 272, `${width} px for a select`);
  }
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByText('Add runs').click();
  const { x, width } = (await page.locator('.menu-body').boundingBox())!;
  t.ok(x >= 0 && x + width <= 390, `runs are added on a phone, too: from ${x} px, ${width} px wide`);
});

t.test('a long table of runs keeps its columns on a phone, above and below', { skip }, async t => {
  const root = t.testdir();
  for (let seed = 0; seed < 60; seed++) writeSampleRun(root, `lake-${seed}`, { seed, steps: 1 });
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/`, { viewport: { width: 390, height: 844 } });
  const name = page.locator('.run-table .name').first();
  await name.waitFor();
  t.notOk(await page.locator('.run-table thead button').first().isVisible(), 'a menu orders the runs');
  const { x, width } = (await name.boundingBox())!;
  t.ok(width > 150, `${width} px for the name`);
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await page.locator('.run-table tbody tr:first-child.space').waitFor({ state: 'attached' });
  const below = (await name.boundingBox())!;
  t.same([below.x, below.width], [x, width]);
});

t.test('no view shifts its content while it loads', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  for (const width of [390, 1280]) {
    const page = await openPage(t, 'about:blank', { viewport: { width, height: 900 } });
    await page.addInitScript(() => {
      const shifts = { sum: 0 };
      Object.assign(window, { shifts });
      new PerformanceObserver(list => {
        for (const entry of list.getEntries()) shifts.sum += (entry as unknown as { value: number }).value;
      }).observe({ type: 'layout-shift', buffered: true });
    });
    for (const [hash, ready] of VIEWS) {
      await page.goto('about:blank');
      await page.goto(`${origin}/runs/${hash}`);
      await page.locator(ready).first().waitFor({ state: 'attached' });
      await page.evaluate(() => new Promise(done => setTimeout(done, 300)));
      const { sum } = await page.evaluate(() => (window as unknown as { shifts: { sum: number } }).shifts);
      t.ok(sum < 0.05, `${hash} at ${width} px moves by ${sum}`);
    }
  }
});

t.test(
  'a page shows how good a run became, whether it is healthy, and what it does wrong',
  { skip },
  async t => {
    const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
    const page = await openPage(t, `${origin}/runs/#/run/lake-1`);
    const text = page.locator('main');
    await text.getByText('Success went from 20 % to 80 %').waitFor();
    await text.getByText('step 30 of 30 after').waitFor();
    await text.getByText('acting at random reaches 25 %, the optimum is 94 %').waitFor();
    await text.getByText('Training is healthy').waitFor();
    t.equal(await page.locator('.headline-number').textContent(), '80\u00a0%');
    t.same(await page.locator('.headline dd').allTextContents(), [
      '75 to 85\u00a0%',
      '20\u00a0%',
      '80\u00a0%',
    ]);
    t.same(await page.locator('.mark-label').allTextContents(), ['random 25\u00a0%', 'optimum 94\u00a0%']);
    t.equal(await page.locator('.chip').first().textContent(), 'improved');
    await text.getByRole('heading', { name: 'Returns of 16 training episodes, step 30' }).waitFor();
    await text.getByRole('heading', { name: '16 episodes, lowest return first' }).waitFor();
    const bar = text.getByRole('button', { name: '8 episodes with return 1' });
    await bar.click();
    await text.getByRole('heading', { name: '8 episodes with return 1' }).waitFor();
    t.same(await bar.getAttribute('aria-pressed'), 'true');
    t.match(page.url(), /min=1&max=1$/);
    t.equal(await page.locator('.rollouts .outcome:not(.good)').count(), 0);
    t.match(
      await text.getByRole('link', { name: 'Show them by group' }).getAttribute('href'),
      /episodes\?file=train-000030&min=1&max=1$/,
    );
    await bar.click();
    await text.getByRole('heading', { name: '16 episodes, lowest return first' }).waitFor();
    await page.locator('.rollouts tbody a').first().click();
    await page.getByText('no success', { exact: true }).waitFor();
    await page.goto(`${origin}/runs/#/run/lake-2/filter`);
    await text.getByText('they hold 40 % of the information in the prompt').waitFor();
    await page.goto(`${origin}/runs/#/run/broken`);
    await text.getByText('The run failed at step 3 of 3').waitFor();
    await text.getByText('no <b>room</b> on the disk').first().waitFor();
  },
);

t.test('a run counts how its episodes end, and what rewards are made of', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/#/run/lake-1`);
  const rows = (name: string) =>
    page
      .getByRole('region', { name })
      .getByRole('row')
      .evaluateAll(all => all.map(row => [...row.children].map(cell => cell.textContent)));
  await page.getByRole('region', { name: 'How training episodes end' }).waitFor();
  t.same(await rows('How training episodes end'), [
    ['End', 'Step 1', 'Step 30'],
    ['Reached the goal', '22\u00a0%', '80\u00a0%'],
    ['Fell into a hole', '39\u00a0%', '10.0\u00a0%'],
    ['Ran out of turns', '39\u00a0%', '10.0\u00a0%'],
  ]);
  t.same(await rows('Reward components, mean of an episode'), [
    ['Component', 'Weight', 'Step 1', 'Step 30'],
    ['dry_feet', '0.25', '0.44', '1.6'],
  ]);
  await page.getByRole('link', { name: 'Fell into a hole' }).click();
  await page.getByText('4 episodes of 16').waitFor();
  t.equal(await page.getByLabel('End').locator('option:checked').textContent(), 'Fell into a hole');
  t.same(await page.locator('.member .outcome').allTextContents(), Array(4).fill('✕ failed'));
  await page.getByLabel('End').selectOption('Ran out of turns');
  await page.locator('.member').first().click();
  await page.getByRole('heading', { name: 'Ran out of turns in turn 3' }).waitFor();
  t.match(await page.locator('.figures').textContent(), /dry_feet, weight 0.251/);
  t.match(await page.locator('.turn-cell').nth(1).textContent(), /dry_feet 0/);
});

t.test('a run with all diagnostics shows them, and an error stays in its panel', { skip }, async t => {
  const root = t.testdir();
  const names = Object.keys(allDiagnostics()).join();
  t.ok(names.length > 16 * 1024, `more names than an address may have: ${names.length}`);
  writeSampleRun(root, 'full', { more: allDiagnostics });
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/run/full/filter`);
  await page.locator('.plane circle').first().waitFor();
  await page.getByRole('rowheader', { name: 'bucket_6', exact: true }).waitFor();
  t.equal(await page.getByRole('alert').count(), 0);
  await page.getByText('8 groups: 5 kept, 1 with returns that are all alike').waitFor();
  await page.route('**/api/metrics?*grad_norm*bucket*', route => route.fulfill({ status: 500, body: '' }));
  await page.reload();
  await page.locator('.panel', { hasText: 'Where the gradient comes from' }).getByRole('alert').waitFor();
  await page.locator('.plane circle').first().waitFor();
  t.equal(await page.getByRole('alert').count(), 1, 'the other panels are there');
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.locator('.settings td').first().waitFor();
  t.equal(await page.getByRole('alert').count(), 0, 'and the other tabs');
  await page.getByRole('link', { name: 'Filter', exact: true }).click();
  await page.getByRole('alert').waitFor();
  await page.unroute('**/api/metrics?*grad_norm*bucket*');
  await page.getByRole('rowheader', { name: 'bucket_6', exact: true }).waitFor();
  t.equal(await page.getByRole('alert').count(), 0, 'what could not be read is requested again');
});

t.test('the keyboard alone finds a run and reads an episode', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/`);
  await page.locator('tbody a').first().waitFor();
  await page.getByRole('searchbox').focus();
  await page.keyboard.type('lake-2');
  await page.getByText('1 of 4 runs').waitFor();
  await page.keyboard.press('Enter');
  t.equal(await page.evaluate(() => document.activeElement?.textContent), 'lake-2');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'lake-2' }).waitFor();
  t.match(page.url(), /#\/run\/lake-2$/);
  await page.goto(`${origin}/runs/${EPISODE}&turn=0&token=4`);
  await page.getByText('Turn 1 of 3').waitFor();
  await page.keyboard.press('ArrowRight');
  await page.getByText('Turn 2 of 3').waitFor();
  await page.keyboard.press('ArrowLeft');
  await page.getByText('Turn 1 of 3').waitFor();
  const chosen = page.locator('.token-name .fine');
  await page.keyboard.press('ArrowDown');
  const first = await chosen.textContent();
  await page.locator('.sampled').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('End');
  t.match([first, await chosen.textContent()], [/^token \d+ of 14, turn 1/, 'token 14 of 14, turn 1']);
  await page.keyboard.press('t');
  await page.getByText('2 nats or more').waitFor();
  await page.keyboard.press('g');
  await page.waitForURL(/index=2/);
  await page.keyboard.press('j');
  await page.waitForURL(/index=3/);
  await page.getByText('Episode 4 of 16').waitFor();
  await page.keyboard.press('g');
  await page.waitForURL(/index=0/);
  await page.evaluate(() => {
    for (const key of ['j', 'j', 'k', 'j'])
      dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  });
  await page.waitForURL(/index=2/, { timeout: 10_000 });
});

t.test('a run is live: its metrics, stage and notes appear without a reload', { skip }, async t => {
  const root = sampleRuns(t.testdir());
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/run/live`);
  await page.locator('.progress', { hasText: 'training, step 10 of 10' }).waitFor();
  await page.getByRole('img', { name: /^Training return: / }).waitFor();
  appendFileSync(join(root, 'live/metrics.jsonl'), '{"step":11,"train/return":7.25}\n');
  await page.getByRole('img', { name: /^Training return: .* to 7.25 at step 11$/ }).waitFor();
  const file = join(root, 'live/status.json');
  const status = JSON.parse(readFileSync(file, 'utf8')) as RunStatus;
  writeFileSync(
    file,
    JSON.stringify({ ...status, state: 'finished', notes: [{ time: 'x', text: 'all is done' }] }),
  );
  await page.locator('.chip', { hasText: /^improved$/ }).waitFor();
  await page.getByText('all is done').waitFor();
});

t.test('runs are ordered, filtered, grouped, tagged and archived', { skip }, async t => {
  const root = sampleRuns(t.testdir());
  writeFileSync(join(root, 'lake-2/config.yaml'), 'seed: 2\nrollout:\n  group_size: 8\n');
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/`);
  const names = page.locator('tbody .name a');
  const see = async (...expected: string[]) => {
    await page.getByText(`${expected.length} of 4 runs`).waitFor();
    t.same((await names.allTextContents()).sort(), expected.sort());
  };
  await page.getByRole('button', { name: 'improved 2' }).click();
  await see('lake-1', 'lake-2');
  await page.getByRole('button', { name: 'improved 2' }).click();
  await page.getByRole('searchbox').fill('group_size>4');
  await see('lake-2');
  await page.getByRole('searchbox').fill('is:any');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.waitForFunction(() => document.querySelector('tbody .name a')?.textContent === 'broken');
  t.same(await names.allTextContents(), ['broken', 'lake-1', 'lake-2', 'live']);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.waitForFunction(() => document.querySelector('tbody .name a')?.textContent === 'live');
  t.equal(await page.getByRole('columnheader', { name: 'Run' }).getAttribute('aria-sort'), 'descending');
  await page.getByText('Columns 11').click();
  await page.getByRole('checkbox', { name: 'rollout.group_size' }).check();
  await page.getByRole('columnheader', { name: 'group_size' }).waitFor();
  await page
    .locator('tr', { hasText: 'lake-2' })
    .locator('.column-rollout-group_size', { hasText: '8' })
    .waitFor();
  t.same(await accessibilityProblems(page), []);
  await page.keyboard.press('Escape');
  await page.getByRole('checkbox', { name: 'rollout.group_size' }).waitFor({ state: 'hidden' });
  await page.getByLabel('Group by').selectOption('rollout.group_size');
  await page.getByRole('row', { name: /^4 3 / }).waitFor();
  await page.getByRole('link', { name: 'Compare them with rollout.group_size 4' }).waitFor();
  await page.goto(`${origin}/runs/#/`);
  await page.getByLabel('Compare lake-1').check();
  await page.getByRole('button', { name: 'Tag', exact: true }).click();
  await page.getByLabel('Tags to add').fill('baseline keep');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.locator('.name', { hasText: 'lake-1' }).getByText('keep', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Note', exact: true }).click();
  await page.getByLabel('Note', { exact: true }).fill('the best <b>so</b> far');
  t.same(await accessibilityProblems(page), []);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('the best <b>so</b> far').waitFor();
  await page.getByRole('button', { name: 'Archive', exact: true }).click();
  await page.getByText('3 of 4 runs').waitFor();
  await page.getByRole('button', { name: 'archived 1' }).click();
  await see('lake-1');
  t.same(JSON.parse(readFileSync(join(root, 'lake-1/annotations.json'), 'utf8')), {
    tags: ['baseline', 'keep'],
    note: 'the best <b>so</b> far',
    archived: true,
  });
});

t.test('annotations are written with JSON by a page of this server only', async t => {
  const runs = sampleRuns(t.testdir());
  const { createDashboard } = await import('./server.ts');
  const app = await createDashboard({ runs, host: '127.0.0.1', allowedHosts: '' });
  t.teardown(() => app.close());
  const words = { tags: ['a'], note: '', archived: false };
  const put = (id: string, payload: object | string, headers: object = {}) =>
    app.inject({
      method: 'PUT',
      url: `/runs/api/annotations?id=${id}`,
      payload,
      headers: { host: '127.0.0.1', 'content-type': 'application/json', ...headers },
    });
  t.equal((await put('lake-1', words)).statusCode, 204);
  t.equal((await put('..', words)).statusCode, 404);
  t.equal((await put('lake-1', { ...words, tags: ['a b'] })).statusCode, 400);
  t.equal((await put('lake-1', JSON.stringify(words), { 'content-type': 'text/plain' })).statusCode, 400);
  t.equal((await put('lake-1', JSON.stringify(words), { 'content-type': 'x/y' })).statusCode, 415);
  t.equal((await put('lake-1', words, { host: 'evil.example' })).statusCode, 421);
  const large = await put('lake-1', `"${'x'.repeat(20_000)}"`);
  t.match(large.headers['content-type'], /^application\/problem\+json/);
  t.match(large.json(), { title: 'Refused', status: 413, detail: /^the body is larger than the \d+ bytes/ });
  rmSync(join(runs, 'lake-2'), { recursive: true });
  t.equal((await put('lake-2', words)).statusCode, 404);
});

t.test(
  'charts zoom, smooth, share a crosshair and are saved; the address keeps the view',
  { skip },
  async t => {
    const runs = t.testdir();
    const counted = (step: number) => ({ 'training/episodes': 64 * step, 'training/seconds': 2 * step });
    writeSampleRun(runs, 'lake-1', { more: counted });
    const origin = await serveDashboard(t, { runs });
    const page = await openPage(t, `${origin}/runs/#/run/lake-1`);
    const chart = page.locator('.small-chart', { hasText: 'Gradient norm' });
    const over = chart.locator('.u-over');
    await over.scrollIntoViewIfNeeded();
    const { x, y, width } = (await over.boundingBox())!;
    await page.mouse.move(x + width / 2, y + 20);
    const other = page.locator('.small-chart', { hasText: 'Entropy' }).locator('.reading');
    await other.getByText(/^step 1[56]: 0\.\d+$/).waitFor();
    await page.mouse.down();
    await page.mouse.move(x + width - 1, y + 20, { steps: 4 });
    await page.mouse.up();
    await page.waitForURL(/zoom=15\.\d+%3A(29|30)/);
    await page.getByRole('button', { name: /^step 15\.\d to step (29\.\d+|30) ✕ show all$/ }).waitFor();
    await page.getByRole('button', { name: 'episodes', exact: true }).click();
    await page.waitForURL(/x=episodes$/);
    t.same(await page.getByRole('group', { name: 'Horizontal axis' }).getByRole('button').allTextContents(), [
      'step',
      'episodes',
      'time',
    ]);
    await page.mouse.move(x + width / 2, y + 30);
    await chart
      .locator('.reading')
      .getByText(/^episodes (960|1024): /)
      .waitFor();
    await page.getByRole('slider', { name: 'smoothing' }).fill('0');
    await page.waitForURL(/smooth=0$/);
    await page.getByRole('button', { name: 'log scale' }).click();
    await page.waitForURL(/log=yes$/);
    await chart.hover();
    const save = async (name: string) => {
      const download = page.waitForEvent('download');
      await chart.getByRole('button', { name }).click();
      const file = await download;
      return { name: file.suggestedFilename(), content: readFileSync(await file.path()) };
    };
    const table = await save('CSV of Gradient norm');
    t.equal(table.name, 'Gradient-norm.csv');
    t.match(String(table.content), /^step,actor\/grad_norm\n1,0\.48\d+\n2,/);
    const image = await save('PNG of Gradient norm');
    t.equal(image.content.subarray(1, 4).toString(), 'PNG');
    t.ok(image.content.length > 4000, `${image.content.length} bytes`);
  },
);

t.test('runs are ticked and compared; those that differ by seed become one curve', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/`);
  for (const id of ['lake-1', 'lake-2']) await page.getByLabel(`Compare ${id}`).check();
  await page.getByRole('link', { name: 'Compare 2 runs' }).click();
  await page.getByText('lake (2 seeds)').first().waitFor();
  await page.getByRole('row', { name: /^seed 1 2$/ }).waitFor();
  await page.getByLabel('One curve for').selectOption('each run');
  await page.locator('.u-legend').getByText('lake-2').first().waitFor();
  await page.waitForURL(/seeds=apart/);
  await page.getByText('p = 1').waitFor();
  await page.getByText('So few runs cannot give a p below 1: train more seeds.').waitFor();
});

t.test(
  'the panel of a token shows its rivals and the reference, where the run kept them',
  { skip },
  async t => {
    const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
    const page = await openPage(t, `${origin}/runs/${EPISODE}&turn=0&token=1`);
    const rivals = page.getByRole('list', { name: 'Likeliest tokens' });
    await rivals.waitFor();
    const rows = await rivals.getByRole('listitem').allTextContents();
    t.equal(rows.length, 3);
    t.equal(rows.filter(row => row.includes('sampled')).length, 1);
    t.match(rows.at(-1), /^all others/);
    const panel = page.getByRole('complementary', { name: 'Token' });
    await panel.getByText('KL to the reference').waitFor();
    t.notMatch(await panel.textContent(), /NaN|undefined/);
    t.same(await accessibilityProblems(page), []);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/rivals.png` });
    await page.goto(`${origin}/runs/#/run/lake-1/episode?file=validation-000030&index=1`);
    // The page before stays until the next one has its data.
    await rivals.waitFor({ state: 'detached' });
    await page.locator('.token.amount').first().waitFor();
    t.equal(await rivals.count(), 0);
  },
);

t.test('/ goes to the search, C compares', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/`);
  await page.getByLabel('Compare lake-1').waitFor();
  await page.keyboard.press('/');
  const search = page.getByRole('searchbox', { name: 'Search runs' });
  t.ok(await search.evaluate(field => field === document.activeElement));
  await page.keyboard.type('c/lake');
  t.equal(await search.inputValue(), 'c/lake', 'letters in a field are text');
  await search.fill('');
  for (const id of ['lake-1', 'lake-2']) await page.getByLabel(`Compare ${id}`).check();
  await page.locator('h1').click();
  await page.keyboard.press('c');
  await page.getByText('lake (2 seeds)').first().waitFor();
  await page.goto(`${origin}/runs/#/run/lake-1/episodes`);
  await page.locator('.member').first().waitFor();
  await page.keyboard.press('/');
  const episodes = page.getByRole('searchbox', { name: 'Search prompts and responses' });
  t.ok(await episodes.evaluate(field => field === document.activeElement));
  await episodes.blur();
  await page.keyboard.press('c');
  await page.getByRole('heading', { name: 'Choose two runs or more' }).waitFor();
  t.ok(await page.getByRole('checkbox', { name: /^lake-1/ }).isChecked());
});

t.test('a comparison of less than two runs offers runs to choose', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/#/compare`);
  for (const hash of ['#/compare', '#/compare?runs=', '#/compare?runs=,', '#/compare?runs=lake-1']) {
    await page.goto(`${origin}/runs/${hash}`);
    await page.getByRole('heading', { name: 'Choose two runs or more' }).waitFor();
    await page.getByRole('checkbox', { name: /^live/ }).waitFor();
    t.notMatch(await page.locator('main').textContent(), /undefined|NaN|\[object|null/, hash);
  }
  t.same(await accessibilityProblems(page), []);
  await page.getByLabel('Find runs').fill('state=improved');
  await page.getByRole('checkbox', { name: /^broken/ }).waitFor({ state: 'detached' });
  await page.getByRole('checkbox', { name: /^lake-2/ }).click();
  await page.waitForURL(/runs=lake-1%2Clake-2/);
  await page.getByText('lake (2 seeds)').first().waitFor();
  await page.getByRole('button', { name: 'Take lake-1 out' }).click();
  await page.getByRole('heading', { name: 'Choose two runs or more' }).waitFor();
});

t.test('groups by a setting have bands, and are tested by pairs of one seed', { skip }, async t => {
  const root = t.testdir();
  for (const [size, steps] of [
    [1, 30],
    [8, 30],
  ]) {
    for (const seed of [1, 2, 3]) {
      const gain = size / 100 + seed / 1000;
      const folder = writeSampleRun(root, `g${size}-${seed}`, {
        seed,
        steps,
        more: () => ({ 'val-env/success': gain }),
      });
      writeFileSync(join(folder, 'config.yaml'), `seed: ${seed}\nrollout:\n  group_size: ${size}\n`);
    }
  }
  const origin = await serveDashboard(t, { runs: root });
  const ids = ['g1-1', 'g1-2', 'g1-3', 'g8-1', 'g8-2', 'g8-3'].join();
  const page = await openPage(t, `${origin}/runs/#/compare?runs=${ids}&band=rollout.group_size`);
  await page.locator('.u-legend').getByText('group_size 8').first().waitFor();
  await page.getByText('Bands: one standard deviation over the runs').waitFor();
  await page.getByLabel('Metric').selectOption('train/success');
  await page.getByText('exact sign-flip test of 3 pairs of one seed').waitFor();
  await page.getByText('So few runs cannot give a p below 0.25').waitFor();
  t.equal(await page.getByRole('region', { name: 'Pairs' }).locator('tbody tr').count(), 3);
  t.same(await accessibilityProblems(page), []);
});

t.test('settings are searched, and begin with those that differ from the defaults', { skip }, async t => {
  const root = sampleRuns(t.testdir());
  const file = join(root, 'lake-1/status.json');
  const status = JSON.parse(readFileSync(file, 'utf8')) as RunStatus;
  const run = { ...status.run, changed: ['rollout.group_size'] };
  writeFileSync(file, JSON.stringify({ ...status, run }));
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/#/run/lake-1/settings`);
  const first = page.getByRole('region', { name: 'Different from the defaults' });
  await first.getByRole('row', { name: 'rollout.group_size 4' }).waitFor();
  await page.getByText(/^\d+ settings, 1 differ from the defaults$/).waitFor();
  await page.getByRole('searchbox').fill('SEED');
  await page.getByText(/^1 of \d+ settings/).waitFor();
  t.equal(await first.count(), 0);
  t.notMatch(await page.locator('main').textContent(), /secret/);
  await page.goto(`${origin}/runs/#/run/lake-2/settings`);
  await page.getByText('this run does not say which differ from the defaults').waitFor();
});

t.test('a search for episodes continues after 100 hits', { skip }, async t => {
  const runs = t.testdir();
  writeSampleRun(runs, 'large', { groups: 60 });
  const origin = await serveDashboard(t, { runs });
  const page = await openPage(t, `${origin}/runs/#/run/large/episodes?file=train-000030`);
  await page.getByText('240 episodes of 240').waitFor();
  await page.getByLabel('Search prompts and responses').fill('quiet walk');
  await page.getByText('Found in 100 episodes').waitFor();
  await page.getByLabel('Success').selectOption('no');
  await page.getByRole('button', { name: 'Search on' }).click();
  await page.getByText('Found in 120 episodes.').waitFor();
  t.equal(await page.locator('.hits .chip.good').count(), 0);
  t.equal(await page.getByRole('button', { name: 'Search on' }).count(), 0);
});

t.test('episodes are filtered, searched, tinted and saved', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/#/run/lake-1/episodes?file=train-000030`);
  await page.getByText('16 episodes of 16 in 4 groups').waitFor();
  await page.getByText('dropped: score 0, all returns are alike').waitFor();
  await seeLooks(t, page, 'episodes');
  await page.setViewportSize({ width: 390, height: 844 });
  const { height } = (await page.locator('.filters').boundingBox())!;
  t.ok(height < 100, `one line of filters on a phone: ${height} px`);
  await page.getByLabel('Success').selectOption('no');
  await page.getByText('8 episodes of 16').waitFor();
  await page.getByLabel('Rollout filter').selectOption('yes');
  await page.getByText('6 episodes of 16').waitFor();
  await page.getByLabel('Search prompts and responses').fill('quiet WALK');
  await page.getByText('Found in 6 episodes.').waitFor();
  await page.getByLabel('Success').selectOption('yes');
  await page.getByText('Found in 6 episodes.').waitFor();
  t.equal(await page.locator('.hits .chip.bad').count(), 0);
  await page.goto(`${origin}/runs/${EPISODE}`);
  await page.getByLabel('Tokens tinted by').selectOption('advantage');
  await page.locator('.token.down').first().waitFor();
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Save as messages (JSONL)' }).click();
  const [line] = readFileSync(await (await download).path(), 'utf8').split('\n');
  t.match(JSON.parse(line), {
    success: false,
    messages: [{ role: 'user' }, { role: 'assistant', content: /quiet walk/ }],
  });
});

t.test('episodes lead to themselves while those of another step are on their way', { skip }, async t => {
  const origin = await serveDashboard(t, { runs: sampleRuns(t.testdir()) });
  const page = await openPage(t, `${origin}/runs/#/run/lake-1/episodes?file=train-000030`);
  const member = page.locator('.member').first();
  await member.waitFor();
  const asked = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  await page.route('**/api/episodes?*', async route => {
    asked.resolve();
    await held.promise;
    await route.continue();
  });
  await page.getByRole('combobox', { name: 'Step' }).selectOption('train-000020');
  await asked.promise;
  t.match(await member.getAttribute('href'), /file=train-000030/);
  held.resolve();
  await page.locator('.member[href*="file=train-000020"]').first().waitFor();
});

t.test('runs keep their places when another one writes', { skip }, async t => {
  const root = sampleRuns(t.testdir());
  const origin = await serveDashboard(t, { runs: root });
  const page = await openPage(t, `${origin}/runs/`);
  const names = page.locator('tbody .name a');
  await names.first().waitFor();
  const before = await names.allTextContents();
  const last = before.at(-1)!;
  const file = join(root, last, 'status.json');
  const status = JSON.parse(readFileSync(file, 'utf8')) as RunStatus;
  writeFileSync(file, JSON.stringify({ ...status, run: { ...status.run, recipe: ['written since'] } }));
  await page.getByText('written since').waitFor();
  t.same(await names.allTextContents(), before);
});

t.test('an episode branches into a session on the environment server', { skip }, async t => {
  const { server } = await createApp({ logLevel: 'silent' });
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(() => server.close());
  const runs = sampleRuns(t.testdir());
  // As a tree's try: its chance is another one after the first step.
  const file = join(runs, 'lake-1/trajectories/train-000030.jsonl');
  const reseeds = [{ step: 1, dynamics_seed: 5 }];
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  writeFileSync(file, lines.map(line => `${JSON.stringify({ ...JSON.parse(line), reseeds })}\n`).join(''));
  const origin = await serveDashboard(t, { runs, server: address });
  const page = await openPage(t, `${origin}/runs/${EPISODE}&turn=1`);
  const ways = page.getByRole('group', { name: 'Branch here' });
  await ways.getByRole('button', { name: 'hand' }).click();
  const link = page.getByRole('link', { name: 'Open in Watch' });
  const id = /#\/watch\/(.+)$/.exec((await link.getAttribute('href'))!)![1];
  const session = (await (await fetch(`${address}/v1/sessions/${id}`)).json()) as {
    env_id: string;
    seed: number;
    step: number;
  };
  t.match(session, { env_id: 'FrozenLake-v0', seed: 100, reseeds });
  t.equal(session.step, 1, 'it has taken the actions of the turns before');
  await page.getByRole('group', { name: 'Play on by hand' }).getByRole('button', { name: 'Down' }).click();
  await page.locator('.branch-actions li', { hasText: 'Down' }).waitFor();
  t.match(await accessibilityProblems(page), []);
  await page.locator('.branch .state').press('ArrowRight');
  await page.locator('.branch-actions li', { hasText: 'Right' }).waitFor();
  t.match(page.url(), /turn=1/, 'a key on the board of the branch leaves the turn of the page');
  const undo = page.getByRole('button', { name: 'Undo' });
  for (const left of [1, 0]) {
    await undo.click();
    await page.waitForFunction(
      count => document.querySelectorAll('.branch-actions li').length === count,
      left,
    );
  }
  t.ok(await undo.isDisabled(), 'actions of the episode itself are not taken back');
  await ways.getByRole('button', { name: 'optimal' }).click();
  await page.getByText('succeeded, return from here 1').waitFor();
  await page.getByRole('button', { name: 'Close the branch' }).click();
  await page.route('**/v1/sessions', route =>
    route.fulfill({ status: 502, body: '{"detail":"it is gone"}' }),
  );
  await ways.getByRole('button', { name: 'optimal' }).click();
  await ways.getByRole('alert').getByText('it is gone').waitFor();
  await page.unroute('**/v1/sessions');
  await page.goto(`${origin}/runs/#/run/lake-1/replay`);
  const play = await page.getByRole('link', { name: 'Play this level yourself' }).getAttribute('href');
  await page.goto(play!);
  await page.locator('.state .board').waitFor();
  await page.waitForURL(/preset=deterministic/);
  t.match(
    decodeURIComponent(page.url()),
    /seed=100&config=\{"p_frozen":1\}/,
    'the level under the run’s settings',
  );
  t.equal(await page.getByLabel('Preset').inputValue(), 'deterministic');
});

t.test('a finished run says what to do next, with commands to copy', { skip }, async t => {
  const { server } = await createApp({ logLevel: 'silent' });
  t.teardown(() => server.close());
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const runs = t.testdir({ "a b's": {} });
  writeSampleRun(join(runs, "a b's"), 'lake-1');
  writeSampleRun(runs, 'live', { status: { state: 'running', updated_at: new Date().toISOString() } });
  const origin = await serveDashboard(t, { runs, server: address });
  const page = await openPage(t, `${origin}/runs/#/run/${encodeURIComponent("a b's/lake-1")}`);
  await page.getByRole('heading', { name: 'What to do next' }).waitFor();
  const folder = `'${join(relative('.', runs), "a b'\\''s", 'lake-1')}'`;
  t.same(await page.locator('.command code').allTextContents(), [
    `npm run trainer -- evaluate ${folder} --policy checkpoint --policy random --policy optimal 'servers=[${address}]'`,
    `npm run trainer -- serve ${folder}`,
    `curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d '{"prompt":"Which way?","max_tokens":16}'`,
    `npm run trainer -- init me/GuessTen-v0 --servers ${address}`,
    'npm run trainer -- train GuessTen-v0.yaml',
  ]);
  await page.getByRole('button', { name: 'the command npm run trainer -- serve' }).click();
  await page.getByRole('button', { name: /^(Copied|Press Ctrl\+C) the command/ }).waitFor();
  await page.getByRole('link', { name: 'FrozenLake-v0' }).click();
  await page.waitForURL(`${address}/#/play/FrozenLake-v0*`);
  await page.goto(`${origin}/runs/#/run/live`);
  await page.getByRole('heading', { name: /^Success on levels it never trained on/ }).waitFor();
  t.equal(
    await page.getByRole('heading', { name: 'What to do next' }).count(),
    0,
    'a run in progress has no such panel',
  );
});

t.test('an export of six runs is 200 files at most, and opens from any web server', { skip }, async t => {
  const root = sampleRuns(t.testdir({ out: { data: { 'kept.json': '' } }, runs: {} }));
  for (const id of ['long', 'lake']) writeSampleRun(root, id, { groups: 40, tokens: 600 });
  const out = join(root, 'out');
  const { files } = await exportSite(root, out);
  const onDisk = () =>
    readdirSync(out, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile());
  t.ok(files > 40 && files <= 200, `${files} files`);
  t.equal(onDisk().length, files + 1, 'a folder that is not an export keeps what was there');
  const packs = onDisk().filter(
    ({ parentPath, name }) => parentPath.endsWith('/long') && name.startsWith('episodes'),
  );
  t.ok(packs.length > 2 && packs.length <= 8, `${packs.length} packs`);
  t.equal((await exportSite(root, out)).files, files);
  t.equal(onDisk().length, files, 'an earlier export is replaced');
  const page = await openPage(t, await serveFiles(t, out));
  await page.getByRole('link', { name: 'lake-1' }).click();
  await page.getByText('Success went from 20 % to 80 %').waitFor();
  for (const [hash, ready] of VIEWS) {
    await page.goto(`${new URL(page.url()).origin}/${hash}`);
    await page.locator(ready).first().waitFor({ state: 'attached' });
  }
  const { origin } = new URL(page.url());
  await page.goto(`${origin}/#/run/lake-1/episodes?file=train-000030&q=QUIET`);
  await page.getByText('Found in 16 episodes.').waitFor();
  await page.goto(`${origin}/#/run/long/episode?file=train-000030&index=159`);
  await page.getByText('Episode 160 of 160').waitFor();
  await page.locator('.token.amount').first().waitFor();
  await page.goto(`${origin}/#/run/long/episode?file=train-000030&index=160`);
  await page.getByText('There is no such episode').waitFor();
  await page.goto(`${origin}/#/?q=lake-1`);
  await page.getByText('1 of 6 runs').waitFor();
  await page.getByLabel('Files of trajectories').setInputFiles({
    name: 'a.jsonl',
    mimeType: 'application/json',
    buffer: Buffer.from('{"input": "a", "output": "b", "score": 1}\n'),
  });
  await page.getByText('1 episode of 1').waitFor();
  await page.goto(`${origin}/#/?q=lake-1`);
  await page.getByLabel('Files of trajectories').setInputFiles({
    name: 'trajectory.json',
    mimeType: 'application/json',
    buffer: Buffer.from(JSON.stringify(ATIF_DOCUMENT)),
  });
  await page.locator('a[href*="/episode?"]').first().click();
  await page.locator('.turn-strip').waitFor();
  t.equal(
    await page.getByText('return', { exact: true }).count(),
    0,
    'what has no return has no place for one',
  );
});

t.test('the dashboard stays on this machine and answers to its names only', async t => {
  const runs = t.testdir();
  await t.rejects(
    serveDashboard(t, { runs, host: '0.0.0.0' }),
    /has no tokens and listens on this machine only/,
  );
  const { createDashboard } = await import('./server.ts');
  const app = await createDashboard({ runs, host: '127.0.0.1', allowedHosts: '' });
  t.teardown(() => app.close());
  const ask = (url: string, host = '127.0.0.1') => app.inject({ url, headers: { host } });
  t.equal((await ask('/runs/', 'evil.example')).statusCode, 421);
  const page = await ask('/runs/');
  t.match(String(page.headers['content-security-policy']), /default-src 'self'/);
  t.equal(page.headers['x-content-type-options'], 'nosniff');
  for (const url of [
    '/runs/assets/../../package.json',
    '/runs/assets/package.json',
    '/runs/assets/shared%2f..%2fpackage.json',
    '/runs/api/run?id=..',
    '/runs/api/run',
    '/runs/api/episode?id=x&file=../x&index=0',
  ]) {
    t.equal((await ask(url)).statusCode, 404, url);
  }
  t.equal((await ask('/runs/api/run?id=a&id=b')).statusCode, 400);
  t.equal(
    (await app.inject({ method: 'POST', url: '/server/v1/sessions', headers: { host: '127.0.0.1' } }))
      .statusCode,
    404,
  );
});

t.test('scripts, sheets and data come compressed', async t => {
  const root = t.testdir();
  writeSampleRun(root, 'lake-1', { steps: 200 });
  const origin = await serveDashboard(t, { runs: root });
  for (const path of ['', 'assets/site/runs/main.ts', 'assets/site/runs/runs.css', 'api/metrics?id=lake-1']) {
    const { status, headers } = await fetch(`${origin}/runs/${path}`, {
      headers: { 'accept-encoding': 'br' },
    });
    t.match({ status, encoding: headers.get('content-encoding') }, { status: 200, encoding: 'br' }, path);
  }
});

t.test('the environment server shows runs with --runs, to those who have a token', async t => {
  const runs = sampleRuns(t.testdir());
  const tokens = JSON.stringify([
    {
      name: 'ann',
      sha256: '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b',
      scopes: ['play'],
    },
  ]);
  const { server } = await createApp({ logLevel: 'silent', runs, tokens });
  t.teardown(() => server.close());
  const ask = (url: string, authorization?: string) =>
    server.inject({ url, headers: { host: '127.0.0.1', ...(authorization ? { authorization } : {}) } });
  t.equal((await ask('/runs/')).statusCode, 200);
  t.match((await ask('/')).body, /data-runs="runs\/"/, 'the other pages link it');
  t.equal((await ask('/runs/assets/site/runs/main.ts')).statusCode, 200);
  t.equal((await ask('/runs/api/runs')).statusCode, 401);
  t.equal((await ask('/runs/assets/..%2fapi%2fruns')).statusCode, 404);
  t.match((await ask('/runs/api/runs', 'Bearer secret')).json(), { total: 4 });
  const annotate = (authorization: object) =>
    server.inject({
      method: 'PUT',
      url: '/runs/api/annotations?id=lake-1',
      payload: { tags: ['a'], note: '', archived: false },
      headers: { host: '127.0.0.1', ...authorization },
    });
  t.equal((await annotate({})).statusCode, 401);
  t.equal((await annotate({ authorization: 'Bearer secret' })).statusCode, 204);
  const without = await createApp({ logLevel: 'silent' });
  t.teardown(() => without.server.close());
  t.equal((await without.server.inject({ url: '/runs/', headers: { host: '127.0.0.1' } })).statusCode, 404);
});
