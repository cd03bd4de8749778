import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { AskReply, PlayOnReply } from '../../../shared/run-folder/checkpoint-request.ts';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { accessibilityProblems, seeLooks, skip } from '../../../site/playground/browser.test-data.ts';
import { openPage } from '../../dashboard/dashboard.test-data.ts';
import { createDashboard } from '../../dashboard/server.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { CheckpointProcesses } from './checkpoint-processes.ts';

const TOKEN = 'the-token-of-the-dashboard';
const MAX_MS = 300_000;

/** A tiny run with two checkpoints, its first episode with several turns, and a dashboard that may ask them. */
async function asked(t: Test, limits?: { readonly idleMs?: number }) {
  const [{ name: server }] = (await serve(t)).servers;
  const runs = t.testdir();
  const run = await trainTiny(
    tinySettings(server, runs, 'lake', {
      rollout: { constrained: true },
      training: { steps: 2, checkpoint_every: 1 },
      tracking: { trajectories_every: 1 },
    }),
  );
  const records = readJsonLines(join(run.trajectories, 'train-000001.jsonl')) as TrajectoryRecord[];
  const index = records.findIndex(({ turns }) => turns.length > 1);
  const place = { file: 'train-000001', index, turn: 1 };
  const checkpoints = new CheckpointProcesses(server, limits);
  const settings = { runs, server, host: '127.0.0.1', allowedHosts: '', controlToken: TOKEN, checkpoints };
  const app = await createDashboard(settings);
  t.teardown(() => app.close());
  const send = async (payload: object, token = TOKEN) => {
    const reply = await app.inject({
      method: 'POST',
      url: '/runs/api/checkpoint?id=lake',
      payload,
      headers: { host: '127.0.0.1', authorization: `Bearer ${token}` },
    });
    return { status: reply.statusCode, body: reply.json() };
  };
  const read = async (path: string) =>
    (await app.inject({ url: `/runs/api/${path}`, headers: { host: '127.0.0.1' } })).json();
  /** The prompt of the turn as the page shows it. */
  const prompt = async (): Promise<string> => {
    const { episode, texts } = await read(`episode?id=lake&file=${place.file}&index=${index}`);
    const { tokens, sample } = episode.turns[place.turn];
    return episode.samples[sample].token_ids
      .slice(0, tokens[0])
      .map((id: number) => texts[id])
      .join('');
  };
  return { app, run, checkpoints, place, send, read, prompt, record: records[index] };
}

/** Waits until a process of this id is gone. */
async function gone(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    await pause(50);
  }
}

t.test('a checkpoint answers and plays on, one request at a time', { timeout: MAX_MS }, async t => {
  const { app, run, checkpoints, place, send, record } = await asked(t, { idleMs: 1000 });
  t.match(await send({ action: 'ask', ...place }, 'wrong'), {
    status: 401,
    body: { detail: /needs the token/ },
  });
  t.match(await send({ action: 'guess', ...place }), { status: 400, body: { detail: /must be one of ask/ } });
  t.match(await send({ action: 'ask', ...place, turn: -1 }), {
    status: 400,
    body: { detail: /`turn` must/ },
  });
  t.match(await send({ action: 'ask', ...place, turn: 99 }), { status: 404 });
  t.match(await send({ action: 'ask', ...place, index: 99 }), { status: 404 });
  t.match(await send({ action: 'ask', ...place, file: '../x' }), { status: 404 });
  t.same(checkpoints.pids, [], 'nothing was started for them');

  const asking = send({ action: 'ask', ...place });
  while (checkpoints.pids.length === 0) await pause(10);
  t.match(await send({ action: 'play_on', ...place }), {
    status: 409,
    body: { detail: /answers another request/ },
  });
  const first = await asking;
  t.equal(first.status, 200, JSON.stringify(first.body));
  const { step, answers } = first.body as AskReply;
  t.equal(step, 2);
  t.equal(answers.length, 4);
  for (const { tokens } of answers) {
    t.ok(tokens.length > 0);
    for (const [text, logProb] of tokens) t.ok(typeof text === 'string' && logProb <= 0);
  }
  const [pid] = checkpoints.pids;
  t.equal((await send({ action: 'ask', ...place })).status, 200);
  t.same(checkpoints.pids, [pid], 'the same process answers again');
  await gone(pid);
  t.same(checkpoints.pids, [], 'it ends when nobody asks');

  const played = await send({ action: 'play_on', ...place });
  t.equal(played.status, 200, JSON.stringify(played.body));
  const { actions } = played.body as PlayOnReply;
  const most = record.turns[1].actions_left;
  t.ok(actions.length > 0 && actions.length <= most, `${actions.length} of ${most} actions`);
  t.same(checkpoints.pids, [], 'a process that played has ended');

  t.equal((await send({ action: 'ask', ...place })).status, 200);
  const [last] = checkpoints.pids;
  await app.close();
  await gone(last);
  rmSync(join(run.path, 'checkpoints'), { recursive: true });
});

t.test('a checkpoint that is missing or broken is an answer in words', { timeout: MAX_MS }, async t => {
  const { run, place, send } = await asked(t);
  rmSync(join(run.path, 'checkpoints/step-000002/policy/model.safetensors'));
  for (const action of ['ask', 'play_on'])
    t.match(await send({ action, ...place }), { status: 409, body: { detail: /safetensors/ } }, action);
  rmSync(join(run.path, 'checkpoints'), { recursive: true });
  t.match(await send({ action: 'ask', ...place }), {
    status: 409,
    body: { detail: /has no checkpoint yet/ },
  });
});

t.test('a checkpoint is chosen by its step, one process at a time', { timeout: MAX_MS }, async t => {
  const { run, checkpoints, place, send, read } = await asked(t);
  const folder = join(run.checkpoints, 'step-000001');
  t.same(await read('checkpoints?id=lake'), { steps: [1, 2] });
  t.match(await read('checkpoints?id=none'), { status: 404 });
  t.match(await send({ action: 'ask', ...place, step: 1 }), { status: 200, body: { step: 1 } });
  const [first] = checkpoints.pids;
  const all = await Promise.all(
    Array.from({ length: 20 }, (_, i) => send({ action: 'ask', ...place, step: 1 + ((i + 1) % 2) })),
  );
  t.same(
    all.map(({ status }) => status).sort(),
    [200, ...Array.from({ length: 19 }, () => 409)],
    'of many changes at once one is answered, the others are refused',
  );
  t.match(await send({ action: 'ask', ...place, step: 2 }), { status: 200, body: { step: 2 } });
  t.equal(checkpoints.pids.length, 1);
  t.not(checkpoints.pids[0], first, 'the former process has ended');
  t.match(await send({ action: 'play_on', ...place, step: 1 }), { status: 200, body: { step: 1 } });

  renameSync(folder, run.best);
  t.same(await read('checkpoints?id=lake'), { steps: [2], best: 1 });
  t.match(await send({ action: 'ask', ...place, step: 1 }), { status: 200, body: { step: 1 } });
  rmSync(run.best, { recursive: true });
  t.match(await send({ action: 'ask', ...place, step: 1 }), {
    status: 409,
    body: { detail: 'the run has no checkpoint of step 1 any more: it keeps 2' },
  });
  t.match(await send({ action: 'ask', ...place, step: -1 }), {
    status: 400,
    body: { detail: /`step` must/ },
  });
});

t.test('a prompt may be changed; only its new text is encoded', { timeout: MAX_MS }, async t => {
  const { place, send, prompt } = await asked(t);
  const text = await prompt();
  const ask = (prompt: unknown) => send({ action: 'ask', ...place, prompt });
  const same = await ask(text);
  t.equal(same.status, 200, JSON.stringify(same.body));
  t.notOk('encoded' in same.body);
  t.same((await ask(`${text}Up`)).body.encoded, { tokens: 1 });
  const cut = await ask(text.slice(0, text.indexOf('<answer>')));
  t.equal(cut.status, 200, JSON.stringify(cut.body));
  t.notOk('encoded' in cut.body, 'a shorter prompt has no new text');
  const foreign = await ask(`Look out! ${text}`);
  t.equal(foreign.status, 200, JSON.stringify(foreign.body));
  t.not(foreign.body.encoded.readAs, undefined, 'the words that the vocabulary lacks are named');

  t.match(await ask(''), { status: 400, body: { detail: /prompt is empty/ } });
  t.match(await ask(7), { status: 400, body: { detail: /`prompt` must be a text/ } });
  t.match(await ask('a'.repeat(200_000)), { status: 400, body: { detail: /200000 characters, more than/ } });
  t.match(await ask('a'.repeat(1_000_000)), { status: 413, body: { detail: /too large/ } });
  t.match(await ask('Up'.repeat(9000)), { status: 409, body: { detail: /tokens/ } });
  t.match(await send({ action: 'play_on', ...place, prompt: text }), {
    status: 400,
    body: { detail: /for `ask` alone/ },
  });
  t.equal((await ask(text)).status, 200, 'it answers again');
});

t.test(
  'an answer has one limit of time; a page that leaves ends the loading',
  { timeout: MAX_MS },
  async t => {
    const { app, run, place, checkpoints } = await asked(t);
    const hurried = new CheckpointProcesses(undefined, { askMs: 1 });
    const question = { before: [1], text: '', after: [], max_tokens: 4 };
    await t.rejects(hurried.ask({ folder: run.path }, question, new AbortController().signal), {
      message: 'the checkpoint has not answered in 0.001 s',
    });
    t.same(hurried.pids, [], 'its process has ended');
    await hurried.close();

    const origin = await app.listen({ host: '127.0.0.1', port: 0 });
    const leaving = new AbortController();
    const asking = fetch(`${origin}/runs/api/checkpoint?id=lake`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify({ action: 'ask', ...place }),
      signal: leaving.signal,
    });
    while (checkpoints.pids.length === 0) await pause(10);
    leaving.abort();
    await t.rejects(asking);
    while (checkpoints.pids.length > 0) await pause(10);
  },
);

t.test(
  'the page of an episode asks the checkpoint and plays on by it',
  { skip, timeout: MAX_MS },
  async t => {
    const { app, run, place, prompt, checkpoints } = await asked(t);
    const origin = await app.listen({ host: '127.0.0.1', port: 0 });
    const { file, index, turn } = place;
    const page = await openPage(
      t,
      `${origin}/runs/#/run/lake/episode?file=${file}&index=${index}&turn=${turn}`,
    );
    await page.getByText('Ask the checkpoint here').click();
    await page.getByRole('button', { name: 'Sample four responses' }).click();
    await page.getByRole('alert').getByText('needs the token').waitFor();
    await page.locator('input[name=token]').fill(TOKEN);
    await page.getByRole('button', { name: 'Use it' }).click();
    await page.getByText('from the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    t.equal(await page.getByRole('list', { name: 'Sampled responses' }).getByRole('listitem').count(), 4);

    const field = page.getByLabel('Prompt to answer');
    const sample = page.getByRole('button', { name: 'Sample four responses' });
    const whole = await field.inputValue();
    t.equal(whole, await prompt(), 'the field has the prompt of the turn');
    const choice = page.getByRole('combobox', { name: 'Checkpoint' });
    await choice.focus();
    await page.keyboard.press('ArrowDown');
    await page.waitForURL(/checkpoint=1/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Control+End');
    await page.keyboard.type('Up');
    t.match(page.url(), new RegExp(`turn=${turn}`), 'keys in the field leave the turn');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page
      .getByText(/from the checkpoint of step 1, .*; 1 token of the prompt is new/)
      .waitFor({ timeout: MAX_MS });
    t.equal(await field.inputValue(), `${whole}Up`);
    await field.fill('a'.repeat(1_000_000));
    await page.getByText(/the prompt has 1000000 characters, more than/).waitFor();
    t.ok(await sample.isDisabled());
    await page.getByRole('button', { name: 'Undo the changes' }).click();
    t.equal(await field.inputValue(), whole);
    for (let i = 0; i < 20; i++) await choice.selectOption({ index: i % 2 });
    rmSync(join(run.checkpoints, 'step-000001'), { recursive: true });
    await sample.click();
    await page.getByRole('alert').getByText('no checkpoint of step 1 any more').waitFor();
    await choice.locator('option:checked', { hasText: 'step 1, not kept' }).waitFor({ state: 'attached' });
    await choice.selectOption({ index: 0 });
    await sample.click();
    await page.getByText('from the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    t.ok(checkpoints.pids.length <= 1, 'one process after twenty changes');
    await page
      .getByRole('group', { name: 'Branch here' })
      .getByRole('button', { name: 'checkpoint' })
      .click();
    await page.getByText('played by the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    t.same(await accessibilityProblems(page), []);
    await page.locator('.branch-actions li').first().waitFor();
    await seeLooks(t, page, 'here');
  },
);
