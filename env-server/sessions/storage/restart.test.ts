import { cpSync, readdirSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { SessionRows } from '../../persistence/session-rows.ts';
import type { EmbeddedSessions } from './embedded-sessions.ts';
import { server } from './restart.test-data.ts';

/** Effects of time, repeated requests, and other servers on the same folder on sessions over a restart. */

t.setTimeout(900_000);

t.test('repeated requests are known after a restart', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const create = { env_id: 'test/Counter-v0', count: 2 };
  const created = await first.ask('POST', '/v1/sessions', create, 'c');
  const step = `/v1/sessions/${created.session_id}/step`;
  const stepped = await first.ask('POST', step, { action: 'draw' }, 's');
  await first.server.close();
  const again = await server(t, data);
  t.same(await again.ask('POST', '/v1/sessions', create, 'c'), created);
  t.same(await again.ask('POST', step, { action: 'draw' }, 's'), stepped);
  t.match(await again.ask('POST', step, { action: 'add' }, 's'), { code: 'key_reused' });
  t.match(await again.ask('POST', '/v1/sessions', { ...create, count: 3 }, 'c'), { code: 'key_reused' });
  t.match(await again.ask('POST', step, { action: 'draw' }, 't'), { step: 2 });
  t.equal(again.sessions.size, 2);
});

t.test(
  'repeated steps are known from the journal, whether or not more than the action was asked',
  async t => {
    const data = t.testdir();
    const copy = `${data}-copy`;
    t.teardown(() => rmSync(copy, { recursive: true, force: true, maxRetries: 20 }));
    const first = await server(t, data);
    const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
    const step = `/v1/sessions/${session_id}/step`;
    const asked = { plain: { action: 'add' }, exact: { action: 'add', expected_step: 2 } };
    const plain = await first.ask('POST', step, asked.plain, 'plain');
    const exact = await first.ask('POST', step, asked.exact, 'exact');
    // As it is on the disk while the server runs, and when it is killed.
    cpSync(data, copy, { recursive: true });
    const again = await server(t, copy);
    t.same(await again.ask('POST', step, asked.plain, 'plain'), plain);
    t.same(await again.ask('POST', step, asked.exact, 'exact'), exact);
    t.match(await again.ask('POST', step, asked.exact, 'plain'), { code: 'key_reused' });
    t.match(await again.ask('POST', step, asked.plain, 'exact'), { code: 'key_reused' });
    t.match(await again.ask('GET', `/v1/sessions/${session_id}`), { step: 2 });
  },
);

for (const [name, lose] of [
  ['has lost its end', (journal: string) => truncateSync(join(journal, `${newestOf(journal)}-wal`), 100)],
  ['is gone', (journal: string) => rmSync(join(journal, newestOf(journal)))],
] as const) {
  t.test(`where a file of the journal ${name}, sessions are rolled back and not continued`, async t => {
    const data = t.testdir();
    const copy = `${data}-copy`;
    t.teardown(() => rmSync(copy, { recursive: true, force: true, maxRetries: 20 }));
    const game = { env_id: 'test/Counter-v0', wrappers: [{ name: 'auto_reset' }] };
    const first = await server(t, data, undefined, { journalMaxMb: 0.1 });
    const { session_id } = await first.ask('POST', '/v1/sessions', game);
    const step = `/v1/sessions/${session_id}/step`;
    await first.ask('POST', step, { action: 'add' });
    const folder = join(data, 'journal');
    // Half a full journal asks for a checkpoint, after which the next file is begun.
    const begun = newestOf(folder);
    for (let i = 0; newestOf(folder) === begun && i < 1000; i++) {
      await first.ask('POST', step, { action: 'add' }, `${'k'.repeat(100)}${i}`);
    }
    t.not(newestOf(folder), begun);
    cpSync(data, copy, { recursive: true });
    lose(join(copy, 'journal'));
    const again = await server(t, copy);
    t.match(await again.ask('POST', step, { action: 'add' }), { code: 'session_rolled_back' });
    t.equal((await again.ask('GET', `/v1/sessions/${session_id}`)).code, undefined);
    t.equal(
      (await again.ask('POST', step, { action: 'add' })).code,
      undefined,
      'the client knows where it stands',
    );
  });
}

function newestOf(journal: string): string {
  return readdirSync(journal)
    .filter(name => name.endsWith('.journal'))
    .sort()
    .at(-1)!;
}

t.test('idle time pauses while the server is down, lifetime does not; 410 is remembered', async t => {
  const data = t.testdir();
  const clock = { now: 1e12 };
  const limits = { idleTtlSeconds: 100, lifetimeSeconds: 1000, goneSeconds: 500 };
  const first = await server(t, data, clock, limits);
  const open = async (more: object = {}) =>
    (await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', ...more })).session_id;
  const [kept, brief, closed] = [await open(), await open({ ttl_s: 10 }), await open()];
  await first.server.inject({ method: 'DELETE', url: `/v1/sessions/${closed}` });
  clock.now += 50_000;
  first.sessions.sweep();
  await first.server.close();

  clock.now += 300_000;
  const second = await server(t, data, clock, limits);
  const found = await second.ask('GET', `/v1/sessions/${kept}`);
  t.equal(found.expires_at, new Date(clock.now + 100_000).toISOString());
  t.match(await second.ask('GET', `/v1/sessions/${brief}`), { code: 'session_expired', status: 410 });
  t.match(await second.ask('GET', `/v1/sessions/${closed}`), { code: 'session_closed' });
  await second.server.close();

  clock.now += 700_000;
  const third = await server(t, data, clock, limits);
  t.match(await third.ask('GET', `/v1/sessions/${kept}`), { code: 'session_expired' });
  t.match(await third.ask('GET', `/v1/sessions/${brief}`), { code: 'unknown_session' });
  t.equal(third.sessions.size, 0);
});

t.test('limits count what was resumed', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 3 });
  await first.server.close();
  const again = await server(t, data, undefined, { maxSessions: 2 });
  t.equal(again.sessions.size, 3, 'what was there stays');
  t.match(await again.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }), {
    code: 'too_many_sessions',
  });
});

t.test('a step in progress at the end is as if it had not begun, draws included', async t => {
  const { waiting } = await import('../../../test/environments.test-data.ts');
  const data = t.testdir();
  const first = await server(t, data);
  const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Slow-v0', seed: 3 });
  const twin = await first.ask('POST', '/v1/sessions', { env_id: 'test/Slow-v0', seed: 3 });
  const step = { action: 'draw' };
  void first.ask('POST', `/v1/sessions/${session_id}/step`, step, 'k').catch(() => undefined);
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  const late = first.shutDown(20);
  await t.rejects(first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }).then(refuse), {
    code: 'draining',
    status: 503,
    retry_after_s: 1,
  });
  await new Promise(resolve => setTimeout(resolve, 40));
  waiting.shift()!();
  await late;

  const again = await server(t, data);
  const results = [session_id, twin.session_id].map(id =>
    again.ask('POST', `/v1/sessions/${id}/step`, step, 'k'),
  );
  while (waiting.length < 2) await new Promise(resolve => setImmediate(resolve));
  for (const pass of waiting.splice(0)) pass();
  const [one, other] = await Promise.all(results);
  t.equal(one.step, 1);
  t.equal(one.observation, other.observation);
});

function refuse(reply: JsonObject): never {
  throw Object.assign(new Error(String(reply.detail)), reply);
}

t.test('a second server on one folder is refused, and the first keeps its sessions', async t => {
  const data = t.testdir();
  const one = await server(t, data);
  const kept = await one.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
  await t.rejects(server(t, data), {
    name: 'FolderInUse',
    message: new RegExp(`in use by another server \\(process ${process.pid} on`),
  });
  await one.server.close();
  const again = await server(t, data);
  t.match(await again.ask('GET', `/v1/sessions/${kept.session_id}`), { step: 0 });
});

t.test(
  'a server that ends, or cannot read its folder, while it resumes leaves everything as it was',
  async t => {
    const data = t.testdir();
    const copy = `${data}-copy`;
    t.teardown(() => rmSync(copy, { recursive: true, force: true, maxRetries: 20 }));
    const first = await server(t, data);
    const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
    const path = `/v1/sessions/${session_id}`;
    for (let i = 0; i < 3; i++) await first.ask('POST', `${path}/step`, { action: 'add' });
    cpSync(data, copy, { recursive: true });
    const ended = await server(t, copy);
    t.ok(ended.sessions.resumption);
    ended.keepSessions();
    await ended.server.close();

    const read = SessionRows.prototype.session;
    t.teardown(() => {
      SessionRows.prototype.session = read;
    });
    SessionRows.prototype.session = () => {
      throw Object.assign(new Error('disk I/O error'), { code: 'ERR_SQLITE_ERROR', errcode: 10 });
    };
    const broken = await server(t, copy);
    t.match(await broken.ask('GET', path), {
      code: 'storage_failed',
      detail: /cannot be opened: the disk reports an error.*restart the server/,
    });
    t.equal((await broken.server.inject({ method: 'GET', url: '/readyz' })).statusCode, 503);
    await broken.server.close();

    SessionRows.prototype.session = read;
    const again = await server(t, copy);
    t.match(await again.ask('GET', path), { step: 3 });
  },
);

t.test('a large group resumes after another client or a checkpoint came in the middle of it', async t => {
  for (const between of ['a session', 'a checkpoint'] as const) {
    const data = join(t.testdir(), between);
    const app = await server(t, data, undefined, { maxSessions: 1000, maxSessionsPerClient: 1000 });
    const recorder = app.sessions.recorder as EmbeddedSessions;
    const opened = recorder.opened.bind(recorder);
    let calls = 0;
    recorder.opened = sessions => {
      opened(sessions);
      if (++calls !== 1) return;
      const [{ owner, variant }] = sessions;
      if (between === 'a session') app.sessions.create(owner, variant, {});
      else setImmediate(() => void recorder.checkpoint());
    };
    const count = 300;
    const group = await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count });
    const ids = (group.sessions as { session_id: string }[]).map(each => each.session_id);
    t.equal(ids.length, count);
    const copy = `${data}-copy`;
    t.teardown(() => rmSync(copy, { recursive: true, force: true, maxRetries: 20 }));
    cpSync(data, copy, { recursive: true });
    const next = await server(t, copy, undefined, { maxSessions: 1000, maxSessionsPerClient: 1000 });
    await next.sessions.resumption;
    t.same(
      ids.filter(id => !next.sessions.get(id)),
      [],
      between,
    );
    await next.server.close();
    await app.server.close();
  }
});
