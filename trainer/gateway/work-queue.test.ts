import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { until } from '../../test/until.test-data.ts';
import { createGatewayApp } from './app.ts';
import { Rollout } from './rollout.ts';
import { WorkQueue } from './work-queue.ts';

const TIMEOUT_MS = 200;

const newRollout = () => {
  const task = { env_id: 'x', instruction: '', observation: '', max_steps: 1 };
  const plan = { tag: 'x', seed: 1, groupId: 0, size: 1 };
  return new Rollout(plan, 0, { server: {} as never, sessionId: '' }, task, { maxCalls: 1, maxTokens: 1 });
};

function newQueue(t: Test) {
  const queue = new WorkQueue();
  const app = createGatewayApp({ rollouts: new Map(), queue, verifierKey: undefined });
  t.teardown(async () => {
    await queue.close();
    await app.close();
  });
  return { queue, app };
}

t.test('a worker has timeout_s from the end of its last episode to ask for one that waits', async t => {
  const file = join(t.testdir(), 'starts');
  const starts = () => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0);
  const { queue, app } = newQueue(t);
  // The test speaks for the program, with its key.
  const command = ['sh', '-c', `echo "$RAGEN_WORKER_TOKEN" >> '${file}'; exec sleep 1000`];
  queue.start({ command, workers: 1, timeoutMs: TIMEOUT_MS }, {});
  await until(() => starts() === 1);
  const authorization = `Bearer ${readFileSync(file, 'utf8').trim()}`;
  const post = (url: string) => app.inject({ method: 'POST', url, headers: { authorization } });
  await pause(3 * TIMEOUT_MS);

  const asked = post('/rollouts/next');
  await pause(3 * TIMEOUT_MS);
  const [first, second] = [newRollout(), newRollout()];
  await queue.play(first, {});
  t.equal((await asked).json().id, first.id, 'nothing waited, so that it was given time');
  void queue.play(second, {});
  await pause(3 * TIMEOUT_MS);
  t.ok(first.isOpen && second.isOpen, 'it plays, and has no need to ask');
  t.equal((await post(`/rollouts/${first.id}/finish`)).statusCode, 200);
  await t.rejects(second.ended, /its worker asked for nothing for 0\.2 s while episodes waited/);
  await until(() => starts() === 2);
});

t.test('a worker that ends after it has played costs no episode that waits', async t => {
  const file = join(t.testdir(), 'starts');
  const starts = () => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []);
  const { queue, app } = newQueue(t);
  const command = ['sh', '-c', `echo "$$ $RAGEN_WORKER_TOKEN" >> '${file}'; exec sleep 1000`];
  queue.start({ command, workers: 1, timeoutMs: 1_000_000 }, {});
  await until(() => starts().length === 1);
  const [pid, key] = starts()[0].split(' ');
  const headers = { authorization: `Bearer ${key}` };
  const [first, second] = [newRollout(), newRollout()];
  const playing = queue.play(first, {});
  await app.inject({ method: 'POST', url: '/rollouts/next', headers });
  await playing;
  void queue.play(second, {});
  process.kill(Number(pid), 'SIGKILL');
  await t.rejects(first.ended, /was ended by SIGKILL|its worker ended in the middle/);
  await until(() => starts().length === 2);
  t.ok(second.isOpen);
  second.ended.catch(() => {});
  process.kill(Number(starts()[1].split(' ')[0]), 'SIGKILL');
  await t.rejects(second.ended, 'one that ends before it has played at all does');
});
