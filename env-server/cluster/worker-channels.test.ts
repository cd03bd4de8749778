import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { plainResult } from '../operations/dispatch/written-result.ts';
import type { Operation } from '../operations/operation.ts';
import { Problem } from '../problems.ts';
import { readLines } from './lines.ts';
import { WorkerChannels, type WorkerRequestHandlers } from './worker-channels.ts';

const STEP = { name: 'step' } as Operation;
const ANN = { name: 'ann', scopes: new Set(['play', 'admin'] as const) };

function folderOf(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Answers with what it was asked; `fail` makes it throw. */
function echo(failures: unknown[] = []): WorkerRequestHandlers {
  return {
    operation(asked) {
      if (asked.input.fail === 'now') throw new Problem('wrong_step', 'no', { retryAfterSeconds: 2 });
      if (asked.input.fail === 'later') return Promise.reject(new Error('secret'));
      const scopes = [...asked.principal.scopes];
      return JSON.stringify({ ...asked, principal: { ...asked.principal, scopes } });
    },
    topic: (topic, payload) => (topic === 'refresh' ? undefined : Promise.resolve([topic, payload])),
    deliver: reply => reply(),
    failed: error => failures.push(error),
  };
}

async function pair(t: Test, failures: unknown[] = []) {
  const folder = folderOf(t);
  const workers = [0, 1].map(index => new WorkerChannels(folder, { index, count: 2 }));
  for (const channels of workers) {
    await channels.listen(echo(failures));
    t.teardown(() => channels.close());
  }
  return { folder, workers };
}

t.test('an operation runs over there as it was asked for here', async t => {
  const { workers } = await pair(t);
  const long = 'ö\n"'.repeat(100_000);
  const asked = Array.from({ length: 20 }, (_, i) => ({ action: i % 5 === 0 ? long : i }));
  const results = await Promise.all(asked.map((input, i) => workers[0].perform(1, ANN, i + 1, STEP, input)));
  const requests = new Set<unknown>();
  results.forEach((result, i) => {
    const { request, ...rest } = plainResult(result) as { request: number };
    t.same(rest, {
      operation: 'step',
      principal: { name: 'ann', scopes: ['play', 'admin'] },
      input: asked[i],
    });
    t.ok(request < 0, 'no number of its own requests');
    requests.add(request);
  });
  t.equal(requests.size, asked.length);
  t.same(await workers[1].ask(0, 'list', { a: [1] }), ['list', { a: [1] }]);
  t.same(await Promise.all(workers[1].askAll('refresh', null)), [null]);
  t.equal(await workers[0].settle(0), 0);
  await t.rejects(workers[0].perform(0, ANN, 1, STEP, {}), /process 0 has no link to 0/);
});

t.test('of many lines that come together some are taken at a time, in their order', async t => {
  const path = join(folderOf(t), 'lines.sock');
  const texts = Array.from({ length: 320 }, (_, i) => `${i} ö`);
  const taken: string[] = [];
  /** At which turn of the event loop each was taken. */
  const turns = new Set<number>();
  let turn = 0;
  const server = createServer(socket => {
    readLines(socket, line => {
      taken.push(line);
      turns.add(turn);
      const end = performance.now() + 0.25;
      while (performance.now() < end);
    });
    const next = (): void => {
      turn++;
      if (taken.length < texts.length) setImmediate(next);
      else socket.end();
    };
    next();
  });
  await new Promise<void>(resolve => server.listen(path, resolve));
  t.teardown(() => server.close());
  const client = connect(path);
  client.write(`${texts.join('\n')}\n`);
  await once(client.resume(), 'close');
  t.same(taken, texts);
  t.ok(turns.size >= texts.length / 16 / 2, `${turns.size} turns`);
});

t.test('a line that cannot be taken ends its socket', async t => {
  const path = join(folderOf(t), 'lines.sock');
  const taken: string[] = [];
  const failures: unknown[] = [];
  const server = createServer(socket => {
    socket.on('error', error => failures.push(error));
    readLines(socket, line => {
      if (line === 'bad') throw new Error('it cannot be taken');
      taken.push(line);
    });
  });
  await new Promise<void>(resolve => server.listen(path, resolve));
  t.teardown(() => server.close());
  const client = connect(path);
  client.write('good\nbad\nnever\n');
  await once(client.resume(), 'close');
  t.same(taken, ['good']);
  t.match(failures, [{ message: 'it cannot be taken' }]);
});

t.test('problems come across without their causes', async t => {
  const failures: unknown[] = [];
  const { workers } = await pair(t, failures);
  await t.rejects(workers[0].perform(1, ANN, 1, STEP, { fail: 'now' }), {
    code: 'wrong_step',
    message: 'no',
    retryAfterSeconds: 2,
  });
  const failed = await workers[0].perform(1, ANN, 1, STEP, { fail: 'later' }).catch((error: Error) => error);
  t.match(failed, { code: 'internal' });
  t.notMatch(String(failed), /secret/);
  t.equal(failures.length, 2, 'they are told where they happened');
});

t.test('a stopped worker is unavailable until it is back', async t => {
  const { folder, workers } = await pair(t);
  await workers[0].ask(1, 'list', 1);
  await workers[1].close();
  for (let i = 0; i < 2; i++) {
    await t.rejects(workers[0].ask(1, 'list', 1), { code: 'worker_unavailable', retryAfterSeconds: 1 });
  }
  const again = new WorkerChannels(folder, { index: 1, count: 2 });
  await again.listen(echo());
  t.teardown(() => again.close());
  t.same(await workers[0].ask(1, 'list', 2), ['list', 2]);
});

t.test('requests to a worker that ends fail as unavailable', async t => {
  const folder = folderOf(t);
  const here = new WorkerChannels(folder, { index: 0, count: 2 });
  const there = new WorkerChannels(folder, { index: 1, count: 2 });
  t.teardown(() => here.close());
  let begun = () => {};
  const asked = new Promise<void>(resolve => {
    begun = resolve;
  });
  await there.listen({
    ...echo(),
    topic() {
      begun();
      return new Promise(() => {});
    },
  });
  const answer = here.ask(1, 'list', null);
  await asked;
  t.equal(await here.settle(20), 1);
  await Promise.all([t.rejects(answer, { code: 'worker_unavailable' }), there.close()]);
});
