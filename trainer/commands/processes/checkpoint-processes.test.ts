import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import type { AskReply, PlayOnReply } from '../../../shared/run-folder/requests.ts';
import { CheckpointProcesses } from './checkpoint-processes.ts';
import { asked, gone, MAX_MS, TOKEN } from './checkpoints.test-data.ts';

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
  t.match(await ask('a'.repeat(1_000_000)), {
    status: 413,
    body: { detail: /larger than the \d+ bytes that this route takes/ },
  });
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
