import { once } from 'node:events';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { testService } from '../env-server/custom/remote/service.test-data.ts';
import { DATABASE_FILE } from '../env-server/persistence/database.ts';
import type { StoredHead } from '../env-server/sessions/storage/stored-session.ts';
import type { JsonObject } from '../shared/json.ts';
import type { Body } from './app.test-data.ts';
import { startServer } from './process.test-data.ts';
import { until } from './until.test-data.ts';

/** Sessions outlive the server's process, after a request to end and after a kill. */

t.setTimeout(900_000);

const remote = (url: string, snapshot: boolean): JsonObject => ({
  kind: 'remote',
  protocol: 'webhook',
  url,
  title: 'Counting',
  instruction: 'Count to a hundred.',
  action_space: { type: 'Discrete', names: ['Add', 'Rest'] },
  example_action: 'Add',
  max_episode_steps: 100,
  capabilities: { snapshot, seed: false },
});

/** A counting service that can hold its steps back until they are released. */
async function slowService(t: Test) {
  const held: (() => void)[] = [];
  const hold = { on: false };
  const counts = new Map<unknown, number>();
  const { url } = await testService(t, async ({ path, body }) => {
    if (path === '/close') return { body: {} };
    const { session_id, state, action } = body as { [key: string]: unknown };
    const before = (state as { count: number } | undefined)?.count ?? counts.get(session_id) ?? 0;
    const count = path === '/reset' ? 0 : before + (action === 'Add' ? 1 : 0);
    counts.set(session_id, count);
    if (hold.on && path === '/step') await new Promise<void>(resolve => held.push(resolve));
    const outcome = { reward: 0, terminated: false, info: { success: false } };
    return { body: { observation: `Count ${count}.`, state: { count }, ...(path === '/step' && outcome) } };
  });
  return { url, held, hold };
}

t.test(
  'SIGTERM: what is in progress finishes, nothing new begins, all sessions continue after a restart',
  async t => {
    const data = t.testdir();
    const service = await slowService(t);
    const flags = ['--data', data, '--remote-networks', '127.0.0.1/32'];
    const first = await startServer(t, flags);
    for (const [env_id, snapshot] of [
      ['me/Copied-v0', true],
      ['me/Held-v0', false],
    ] as const) {
      const { status, text } = await first.ask('POST', '/v1/envs', {
        env_id,
        definition: remote(service.url, snapshot),
      });
      t.equal(status, 201, text);
    }
    const open = async (env_id: string, more: JsonObject = {}) =>
      String((await first.ask('POST', '/v1/sessions', { env_id, ...more })).body.session_id);
    // On this lake the first move ends nothing.
    const lake = await open('FrozenLake-v0', { seed: 1 });
    const held = await open('me/Held-v0');
    const copied = await open('me/Copied-v0');
    const other = await open('me/Copied-v0');
    await first.ask('POST', `/v1/sessions/${lake}/step`, { action: 'Right' });
    const { body: before } = await first.ask('GET', `/v1/sessions/${lake}`);
    const step = (id: string, action: string) => first.ask('POST', `/v1/sessions/${id}/step`, { action });
    await step(copied, 'Add');
    await step(other, 'Add');

    const socket = new WebSocket(`${first.origin.replace('http', 'ws')}/v1/ws`, 'ragen.json');
    const frames: Body[] = [];
    socket.on('message', text => frames.push(JSON.parse(text.toString())));
    const closed = once(socket, 'close');
    await once(socket, 'open');
    service.hold.on = true;
    socket.send(JSON.stringify({ id: 1, op: 'step', session_id: other, action: 'Add' }));
    const underWay = first.ask(
      'POST',
      `/v1/sessions/${copied}/step`,
      { action: 'Add' },
      { 'idempotency-key': 'k' },
    );
    await until(() => service.held.length >= 2);

    const exit = once(first.child, 'exit');
    first.child.kill('SIGTERM');
    await until(async () => (await first.ask('GET', '/readyz')).status !== 200);
    for (const [path, body] of [
      ['/v1/sessions', { env_id: 'FrozenLake-v0' }],
      [`/v1/sessions/${lake}/step`, { action: 'Right' }],
      ['/v1/batch', { items: [{ op: 'list' }] }],
    ] as const) {
      const refused = await first.ask('POST', path, body as JsonObject);
      t.match(refused, { status: 503, body: { code: 'draining', retryable: true } }, path);
      t.equal(refused.headers.get('retry-after'), '1');
    }
    socket.send(JSON.stringify({ id: 2, op: 'step', session_id: lake, action: 'Right' }));
    while (frames.length === 0) await once(socket, 'message');
    t.match(frames, [{ id: 2, ok: false, error: { code: 'draining', status: 503 } }]);
    t.equal((await first.ask('GET', '/livez')).status, 200);
    service.hold.on = false;
    for (const pass of service.held.splice(0)) pass();
    t.match(await underWay, { status: 200, body: { step: 2 } }, 'a request in progress is answered');
    const [closeCode] = await closed;
    t.match(frames[1], { id: 1, ok: true, result: { step: 2 } }, 'so is a frame');
    t.equal(closeCode, 1001);
    t.same(await exit, [0, null]);

    const again = await startServer(t, flags);
    const { body: after } = await again.ask('GET', `/v1/sessions/${lake}`);
    t.same({ ...after, expires_at: '' }, { ...before, expires_at: '' });
    t.match(await again.ask('POST', `/v1/sessions/${lake}/step`, { action: 'Down', expected_step: 2 }), {
      status: 200,
    });
    const repeated = await again.ask(
      'POST',
      `/v1/sessions/${copied}/step`,
      { action: 'Add' },
      { 'idempotency-key': 'k' },
    );
    t.same(repeated.body, (await underWay).body, 'a repeated key gets the reply from before');
    t.match((await again.ask('POST', `/v1/sessions/${copied}/step`, { action: 'Add' })).body, {
      step: 3,
      observation: 'Count 3.',
    });
    t.match((await again.ask('POST', `/v1/sessions/${other}/step`, { action: 'Add' })).body, {
      step: 3,
      observation: 'Count 3.',
    });
    t.match(await again.ask('GET', `/v1/sessions/${held}`), {
      status: 410,
      body: { code: 'session_lost', detail: /me\/Held-v0 holds more than its state/ },
    });
  },
);

t.test(
  'kill -9 without a journal: sessions resume at their last checkpoint, and clients get session_rolled_back',
  async t => {
    const data = t.testdir();
    const flags = ['--data', data, '--durability', 'checkpoint', '--checkpoint-seconds', '0.05'];
    const first = await startServer(t, flags);
    const game = { env_id: 'Game2048-v0', seed: 11 };
    const create = (from: typeof first) => from.ask('POST', '/v1/sessions', game, { 'idempotency-key': 'c' });
    const { body: created } = await create(first);
    const id = String(created.session_id);
    const route = `/v1/sessions/${id}`;
    const act = (from: typeof first, action: string) => from.ask('POST', `${route}/step`, { action });
    await act(first, 'Right');
    const database = new DatabaseSync(join(data, DATABASE_FILE));
    t.teardown(() => database.close());
    const written = (): number => {
      const row = database.prepare('SELECT document FROM sessions').get() as { document: string } | undefined;
      return row ? (JSON.parse(row.document) as StoredHead).episode.step : -1;
    };
    await until(() => written() >= 1 && hasReply(database));
    // From here on it cannot write, and still continues.
    database.exec('BEGIN IMMEDIATE');
    const later = [await act(first, 'Down'), await act(first, 'Left')].map(({ body }) => body);
    t.same(await first.end('SIGKILL'), { code: null, signal: 'SIGKILL' });
    database.exec('ROLLBACK');

    const again = await startServer(t, flags);
    const refused = await act(again, 'Up');
    t.match(refused, { status: 409, body: { code: 'session_rolled_back' } });
    const { body: found } = await again.ask('GET', route);
    t.equal(found.step, 1);
    const replayed = [await act(again, 'Down'), await act(again, 'Left')].map(({ body }) => body);
    t.same(replayed, later, 'the same actions give the same results');
    t.same((await create(again)).body, created, 'the reply to its creation is known');
  },
);

function hasReply(database: DatabaseSync): boolean {
  return database.prepare('SELECT 1 FROM replies').get() !== undefined;
}
