import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { AskReply, PlayOnReply } from '../../../shared/run-folder/checkpoint-request.ts';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { accessibilityProblems, overflow, skip } from '../../../site/playground/browser.test-data.ts';
import { openPage } from '../../dashboard/dashboard.test-data.ts';
import { createDashboard } from '../../dashboard/server.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { CheckpointProcesses } from './checkpoint-processes.ts';

const TOKEN = 'the-token-of-the-dashboard';
const MAX_MS = 300_000;

/** A tiny run, its first episode with several turns, and a dashboard that may ask its checkpoint. */
async function asked(t: Test, idleMs?: number) {
  const [{ name: server }] = (await serve(t)).servers;
  const runs = t.testdir();
  const run = await trainTiny(
    tinySettings(server, runs, 'lake', {
      rollout: { constrained: true },
      training: { steps: 1 },
      tracking: { trajectories_every: 1 },
    }),
  );
  const records = readJsonLines(join(run.trajectories, 'train-000001.jsonl')) as TrajectoryRecord[];
  const index = records.findIndex(({ turns }) => turns.length > 1);
  const place = { file: 'train-000001', index, turn: 1 };
  const checkpoints = new CheckpointProcesses(server, idleMs);
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
  return { app, run, checkpoints, place, send, record: records[index] };
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
  const { app, run, checkpoints, place, send, record } = await asked(t, 1000);
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
  t.equal(step, 1);
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
  rmSync(join(run.path, 'checkpoints/step-000001/policy/model.safetensors'));
  for (const action of ['ask', 'play_on'])
    t.match(await send({ action, ...place }), { status: 409, body: { detail: /safetensors/ } }, action);
  rmSync(join(run.path, 'checkpoints'), { recursive: true });
  t.match(await send({ action: 'ask', ...place }), {
    status: 409,
    body: { detail: /has no checkpoint yet/ },
  });
});

t.test(
  'the page of an episode asks the checkpoint and plays on by it',
  { skip, timeout: MAX_MS },
  async t => {
    const { app, place } = await asked(t);
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
    await page.getByText('from the checkpoint of step 1').waitFor({ timeout: MAX_MS });
    t.equal(await page.getByRole('list', { name: 'Sampled responses' }).getByRole('listitem').count(), 4);
    await page
      .getByRole('group', { name: 'Branch here' })
      .getByRole('button', { name: 'checkpoint' })
      .click();
    await page.getByText('played by the checkpoint of step 1').waitFor({ timeout: MAX_MS });
    t.same(await accessibilityProblems(page), []);
    await page.locator('.branch-actions li').first().waitFor();
    for (const [colorScheme, width] of [
      ['light', 390],
      ['dark', 390],
      ['light', 1280],
      ['dark', 1280],
    ] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: 900 });
      t.ok((await overflow(page)) <= 0, `${width} px: no scrolling sideways`);
      t.same(await accessibilityProblems(page), []);
      if (process.env.SHOTS)
        await page.screenshot({
          path: `${process.env.SHOTS}/here-${width}-${colorScheme}.png`,
          fullPage: true,
        });
    }
  },
);
