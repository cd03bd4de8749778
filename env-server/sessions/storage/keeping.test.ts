import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { movedClock, silentApp } from '../../../test/app.test-data.ts';
import { testRegistry, waiting } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import type { App } from '../../app.ts';
import type { Settings } from '../../config/settings.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import type { Registry } from '../../environments/registry.ts';
import { DATABASE_FILE, openDatabase } from '../../persistence/database.ts';
import { MAX_RECORD_BYTES } from '../../persistence/journal/journal.ts';
import { DatabaseThread } from '../../persistence/thread/database-thread.ts';
import { ServerClock } from '../limits/server-clock.ts';

/** Storage of sessions: each by itself, only what is new, and no client's at the cost of others. */

t.setTimeout(900_000);

/** JSON writes it with six characters. */
const ESCAPED = '\u0001'.repeat(1024);

async function server(
  t: Test,
  data: string,
  settings: Partial<Settings> = {},
  clock = movedClock(() => 1e12),
) {
  const app = await silentApp(
    t,
    { data, checkpointSeconds: 0, ...settings },
    { registry: withOdd(testRegistry()), clock },
  );
  const open = async (env_id: string, more: JsonObject = {}) =>
    String((await app.ask('POST', '/v1/sessions', { env_id, ...more })).body.session_id);
  return { ...app, open };
}

/**
 * `test/Odd-v0` has states as its actions say: nested as deep, or of a kind that is not JSON. That of `test/Huge-v0` is too
 * large for a record of the journal.
 */
function withOdd(registry: Registry): Registry {
  const model = registry.find('test/Faulty-v0')!;
  registry.register({
    ...model,
    spec: { ...model.spec, id: 'test/Odd-v0', maxEpisodeSteps: 1000 },
    reset: () => ({}),
    observe: () => 'odd',
    step: (_state: Json, action: Json) => ({
      state: action === 'bigint' ? { big: 1n } : { nested: nested(Number(action)) },
      reward: 0,
      terminated: false,
      info: { success: false, action_is_valid: true, action_is_effective: true },
    }),
  } as unknown as AnyEnvironment);
  registry.register({
    ...model,
    spec: { ...model.spec, id: 'test/Huge-v0' },
    reset: () => ({ text: ESCAPED.repeat(MAX_RECORD_BYTES / (6 * ESCAPED.length) + 1) }),
    observe: () => 'huge',
  } as unknown as AnyEnvironment);
  return registry;
}

function nested(depth: number): Json {
  let value: Json = 0;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

const step = (app: Awaited<ReturnType<typeof server>>, id: string, action: string, key?: string) =>
  app.ask('POST', `/v1/sessions/${id}/step`, { action }, key);

t.test('long actions and a thousand snapshots are stored once, in slices, and read again', async t => {
  const data = t.testdir();
  const first = await server(t, data, { checkpointSeconds: 3600 });
  const bystanders = await Promise.all(Array.from({ length: 20 }, () => first.open('test/Counter-v0')));
  const session_id = await first.open('MetaMathQA-v0', { wrappers: [{ name: 'auto_reset' }] });
  const action = 'x'.repeat(2000);
  const batch = (count: number, item: object) =>
    first.ask('POST', '/v1/batch', { items: new Array(count).fill({ session_id, ...item }) });
  for (let round = 0; round < 8; round++) {
    await batch(75, { op: 'step', action });
    await batch(128, { op: 'snapshot' });
  }
  const { body: before } = await first.ask('GET', `/v1/sessions/${session_id}`);
  t.equal(before.step, 600);
  await first.server.close();
  const database = new DatabaseSync(join(data, DATABASE_FILE), { readOnly: true });
  const { total } = database.prepare('SELECT sum(length(data)) AS total FROM session_parts').get() as {
    total: number;
  };
  database.close();
  t.ok(total < 8_000_000, `${total} characters`);
  const again = await server(t, data);
  t.same((await again.ask('GET', `/v1/sessions/${session_id}`)).body, before);
  for (const id of bystanders) t.equal((await again.ask('GET', `/v1/sessions/${id}`)).status, 200);
  const restored = await again.ask('POST', `/v1/sessions/${session_id}/restore`, {
    snapshot_id: `${session_id}.s1`,
  });
  t.match(restored, { status: 200, body: { step: 75 } });
});

t.test('a session that cannot be serialized is reported to its client, and costs no other one', async t => {
  const data = t.testdir();
  const first = await server(t, data, { checkpointSeconds: 0.01 });
  const bystanders = await Promise.all(Array.from({ length: 20 }, () => first.open('test/Counter-v0')));
  const odd = { deep: await first.open('test/Odd-v0'), big: await first.open('test/Odd-v0') };
  await step(first, odd.deep, '100000');
  await step(first, odd.big, 'bigint');
  const unsaved = async (id: string) => (await first.ask('GET', `/v1/sessions/${id}`)).body.persistence;
  await until(() => first.sessions.unsaved === 2);
  t.match(await step(first, odd.big, '1'), { status: 507, body: { code: 'session_unsaved' } });
  t.match(await unsaved(odd.big), { state: 'unsaved', reason: /BigInt/ });
  t.match((await step(first, odd.big, 'bigint')).body, { step: 2 }, 'it continues when its client knows');
  for (const id of bystanders) await step(first, id, 'add');
  await first.server.close();

  const again = await server(t, data);
  for (const id of bystanders) t.match((await again.ask('GET', `/v1/sessions/${id}`)).body, { step: 1 });
  for (const id of Object.values(odd)) {
    const { status, body } = await step(again, id, '1');
    const rolledBack = { status: 409, body: { code: 'session_rolled_back' } };
    const lost = { status: 410, body: { code: 'session_lost', detail: /could not be stored/ } };
    t.match({ status, body }, status === 409 ? rolledBack : lost);
  }
});

t.test('a checkpoint writes only changes and removes obsolete parts', async t => {
  const data = t.testdir();
  const app = await server(t, data, { checkpointSeconds: 0.01 });
  const database = new DatabaseSync(join(data, DATABASE_FILE), { readOnly: true });
  t.teardown(() => database.close());
  const id = await app.open('test/Counter-v0', { config: { preset: 'long' } });
  const stored = () =>
    database
      .prepare(
        "SELECT number, data FROM session_parts WHERE session_id = ? AND kind = 'actions' ORDER BY number",
      )
      .all(id) as { number: number; data: string }[];
  const settled = async (count: number) => {
    const actions = () => stored().flatMap(({ data }) => (JSON.parse(data) as { actions: Json[] }).actions);
    await until(() => actions().length === count);
  };
  for (let i = 0; i < 100; i++) await step(app, id, 'draw');
  await settled(100);
  const early = stored();
  await app.ask('POST', `/v1/sessions/${id}/snapshot`);
  for (let i = 0; i < 50; i++) await step(app, id, 'draw');
  await settled(150);
  t.same(stored().slice(0, early.length), early, 'nothing is written again');
  await app.ask('POST', `/v1/sessions/${id}/reset`);
  // Its last chunk, of 64 actions, continues after the snapshot.
  await settled(128);
  t.same(stored().slice(0, early.length), early, 'the snapshot needs these');
  for (let round = 0; round < 3; round++) {
    await app.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id: `${id}.s1` });
    for (let i = 0; i < 30; i++) await step(app, id, 'draw');
    await app.ask('POST', `/v1/sessions/${id}/snapshot`);
  }
  const before = (await app.ask('POST', '/v1/batch', { items: [{ op: 'trajectory', session_id: id }] })).body;
  await app.server.close();
  const again = await server(t, data);
  t.same(
    (await again.ask('POST', '/v1/batch', { items: [{ op: 'trajectory', session_id: id }] })).body,
    before,
  );
  for (const [number, steps] of [100, 130, 130, 130].entries()) {
    const restored = await again.ask('POST', `/v1/sessions/${id}/restore`, {
      snapshot_id: `${id}.s${number + 1}`,
    });
    t.match(restored.body, { step: steps });
  }
});

t.test('dropped request keys are refused after a restart, too', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const id = await first.open('test/Counter-v0', { config: { preset: 'long' } });
  for (let i = 0; i < 400; i++) t.equal((await step(first, id, 'draw', `k${i}`)).status, 200);
  t.match(await step(first, id, 'draw', 'k0'), { status: 409, body: { code: 'request_key_expired' } });
  await first.server.close();
  const again = await server(t, data);
  let expired = 0;
  for (let i = 0; i < 400; i++) {
    const { status, body } = await step(again, id, 'draw', `k${i}`);
    if (status === 409) expired++;
    else t.equal(body.step, i + 1);
  }
  t.ok(expired > 0 && expired < 400, `${expired} of 400 keys`);
  t.match((await again.ask('GET', `/v1/sessions/${id}`)).body, { step: 400 }, 'nothing was carried out');
});

t.test('sessions of the first form are read, snapshots and replies included', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const id = await first.open('test/Counter-v0', { config: { preset: 'long' }, seed: 1 });
  for (let i = 0; i < 3; i++) await step(first, id, 'draw');
  const { body: before } = await first.ask('GET', `/v1/sessions/${id}`);
  await first.server.close();
  const database = new DatabaseSync(join(data, DATABASE_FILE));
  const row = database.prepare('SELECT settings, document FROM sessions').get() as {
    settings: string;
    document: string;
  };
  const { episode } = JSON.parse(row.document) as { episode: JsonObject };
  const { restart: _restart, log: _log, ...old } = episode;
  const document = {
    ...JSON.parse(row.settings),
    episode: { ...old, actions: ['draw', 'draw', 'draw'] },
    past: {
      episodes: 1,
      snapshotsTaken: 1,
      snapshots: [[`${id}.s1`, { ...old, actions: ['draw', 'draw', 'draw'] }]],
      replies: [{ key: 'k', operation: 'step', asked: '[["action","draw"]]', reply: { step: 3 } }],
      rolledBack: false,
    },
  };
  database.exec('DELETE FROM session_parts');
  database
    .prepare('UPDATE sessions SET version = 1, settings = NULL, document = ?')
    .run(JSON.stringify(document));
  database.close();
  for (let restart = 0; restart < 2; restart++) {
    const again = await server(t, data);
    const { memory: _memory, ...found } = (await again.ask('GET', `/v1/sessions/${id}`)).body;
    const { memory: _before, ...expected } = before;
    t.match(found, { ...expected, episode_id: /./ });
    const { status } = await again.ask('GET', `/v1/sessions/${id}`);
    t.equal(status, 200);
    t.equal((await again.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id: `${id}.s1` })).status, 200);
    await again.server.close();
  }
});

/** A machine with clocks that a test moves. */
function machine() {
  const at = { wall: 1e12, passed: 0 };
  const start = (): ServerClock => {
    const began = at.passed;
    return new ServerClock({
      wall: () => at.wall,
      monotonic: () => at.passed - began,
      uptime: () => at.passed,
      boot: () => 'this start',
    });
  };
  const pass = (seconds: number) => {
    at.wall += 1000 * seconds;
    at.passed += 1000 * seconds;
  };
  return { at, start, pass };
}

t.test('a wall clock that is set by hours expires nothing early and nothing never', async t => {
  for (const hours of [-2, 2]) {
    const data = t.testdir({ [String(hours)]: {} });
    const folder = join(data, String(hours));
    const { at, start, pass } = machine();
    const limits = { idleTtlSeconds: 100, lifetimeSeconds: 1000 };
    const first = await server(t, folder, limits, start());
    const id = await first.open('test/Counter-v0');
    const stands = async (app: App & Awaited<ReturnType<typeof server>>) => {
      app.sessions.sweep();
      return (await app.ask('GET', `/v1/sessions/${id}`)).status;
    };
    pass(50);
    at.wall += hours * 3_600_000;
    t.equal(await stands(first), 200);
    const { expires_at } = (await first.ask('GET', `/v1/sessions/${id}`)).body;
    t.equal(Date.parse(expires_at), at.wall + 100_000, 'by the wall clock as it is');
    pass(90);
    t.equal(await stands(first), 200);
    await first.server.close();
    at.wall -= hours * 3_600_000;
    pass(30);
    const second = await server(t, folder, limits, start());
    t.equal(await stands(second), 200);
    const idle = await second.open('test/Counter-v0');
    pass(101);
    second.sessions.sweep();
    t.match((await second.ask('GET', `/v1/sessions/${idle}`)).body, { code: 'session_expired' });
    await second.server.close();
    pass(1000);
    const third = await server(t, folder, limits, start());
    t.equal(await stands(third), 410, 'its lifetime is over');
    await third.server.close();
  }
});

t.test('a session that is busy when it might expire does so when it has been idle long enough', async t => {
  const { at, start, pass } = machine();
  const app = await server(t, t.testdir(), { idleTtlSeconds: 10, lifetimeSeconds: 1000 }, start());
  const id = await app.open('test/Slow-v0');
  const stepped = step(app, id, 'add');
  await until(() => waiting.length > 0);
  pass(20);
  app.sessions.sweep();
  const { expires_at } = (await app.ask('GET', '/v1/sessions')).body.sessions[0];
  t.equal(Date.parse(expires_at), at.wall + 10_000, 'it is in use');
  waiting.shift()!();
  t.equal((await stepped).status, 200);
  pass(9);
  app.sessions.sweep();
  t.equal(app.sessions.size, 1);
  pass(2);
  app.sessions.sweep();
  t.equal(app.sessions.size, 0);
});

t.test('a checkpoint waits for another process in a thread, while clients are answered', async t => {
  const data = t.testdir();
  const first = await server(t, data, { checkpointSeconds: 0.01 });
  const holder = openDatabase(data, 0);
  holder.exec('BEGIN IMMEDIATE');
  const id = await first.open('test/Counter-v0');
  for (let i = 1; i <= 3; i++) {
    t.match(await step(first, id, 'add'), { status: 200, body: { step: i } });
    // Time for a checkpoint.
    await new Promise(resolve => setTimeout(resolve, 20));
  }
  holder.exec('COMMIT');
  holder.close();
  await first.server.close();
  const again = await server(t, data);
  t.match((await again.ask('GET', `/v1/sessions/${id}`)).body, { step: 3 });
});

/** Holds what the thread of the database is to write until it is let go; `refuse` fails it as a full disk does. */
function holdWrites(t: Test) {
  const { write } = DatabaseThread.prototype;
  const held: { refuse: () => void; letGo: () => void }[] = [];
  DatabaseThread.prototype.write = async function (this: DatabaseThread, ...given: never[]) {
    await new Promise<void>((letGo, reject) => {
      const refuse = () => reject(Object.assign(new Error('injected'), { code: 'ENOSPC' }));
      held.push({ refuse, letGo });
    });
    return write.apply(this, given as never);
  } as typeof write;
  const pass = () => {
    DatabaseThread.prototype.write = write;
    for (const { letGo } of held.splice(0)) letGo();
  };
  t.teardown(pass);
  return { held, pass };
}

t.test(
  'what is too large for the journal is stored by a thread, at the cost of its session alone',
  async t => {
    const data = t.testdir();
    const first = await server(t, data, { maxBytesPerSession: MAX_RECORD_BYTES });
    const other = await first.open('test/Counter-v0');
    let disk = holdWrites(t);
    let answered = 0;
    const count = () => {
      answered++;
    };
    const opening = first.open('test/Huge-v0').finally(count);
    await until(() => disk.held.length === 1);
    t.match(await step(first, other, 'add'), { status: 200, body: { step: 1 } }, 'others are acknowledged');
    disk.held.shift()!.refuse();
    await until(async () => (await first.ask('GET', '/readyz')).status === 507);
    t.match(await step(first, other, 'add'), { status: 200, body: { step: 2 } }, 'also when storing fails');
    t.equal(answered, 0, 'its own reply waits until it is tried again');
    disk.pass();
    const huge = await opening;
    const database = openDatabase(data, 0);
    t.teardown(() => database.close());
    const rows = database.prepare('SELECT length(document) AS length FROM sessions WHERE session_id = ?');
    t.ok((rows.get(huge) as { length: number }).length > MAX_RECORD_BYTES);

    disk = holdWrites(t);
    const reset = () => first.ask('POST', `/v1/sessions/${huge}/reset`, { seed: 1 }, 'again').finally(count);
    const resetting = reset();
    await until(() => disk.held.length === 1);
    const again = reset();
    t.match(await first.ask('GET', `/v1/sessions/${huge}`), { status: 200 }, 'looking at it does not wait');
    t.match(await step(first, other, 'add'), { status: 200, body: { step: 3 } });
    t.equal(answered, 1, 'neither the reset nor its repetition is answered');
    disk.pass();
    t.match(await resetting, { status: 200, body: { seed: 1, step: 0 } });
    t.same(await again, await resetting);
  },
);
