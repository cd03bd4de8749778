import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { silentApp } from '../../test/app.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { EXAMPLES } from '../custom/examples.ts';
import { createRegistry } from '../environments/registry.ts';
import { inTransaction, openDatabase } from './database.ts';
import { openJournal as openTestJournal, replayed, systemError } from './journal/journal.test-data.ts';
import { PersistenceHealth } from './persistence-health.ts';
import { fill, smallDisk } from './small-disk.test-data.ts';
import { auditOf, MAZE, REGISTERED } from './store.test-data.ts';
import { DatabaseStore } from './store.ts';

/** Disks that are full, read-only or broken. */

const PAGE_BYTES = 4096;

const environment = (envId: string, length: number) => ({
  ...MAZE,
  envId,
  definition: { text: 'x'.repeat(length) },
});

/** A store with a database that may not grow until `grow` is called. */
function fullStore(folder: string) {
  const database = openDatabase(folder, 1000);
  const { page_count } = database.prepare('PRAGMA page_count').get() as { page_count: number };
  database.exec(`PRAGMA max_page_count = ${page_count}`);
  const health = new PersistenceHealth();
  return {
    database,
    health,
    store: new DatabaseStore(database, health),
    grow: () => database.exec('PRAGMA max_page_count = 1000000'),
  };
}

t.test('a full database refuses with storage_full, and the store continues when there is room', async t => {
  const { store, health, grow } = fullStore(t.testdir());
  t.teardown(() => store.close());
  const large = environment('me/Large-v0', 10 * PAGE_BYTES);
  await t.rejects(store.putEnvironment(large, REGISTERED), {
    code: 'storage_full',
    status: 507,
    message: 'nothing was changed: no space is left for the database (SQLITE_FULL)',
  });
  t.same(store.environments(), []);
  t.match(health.report(), { state: 'degraded', reason: /SQLITE_FULL/ });
  grow();
  await until(() => !health.degraded);
  t.equal(await store.putEnvironment(large, REGISTERED), true);
});

t.test('refused attempts that cannot be noted are noted when there is room', async t => {
  const { store, health, grow } = fullStore(t.testdir());
  t.teardown(() => store.close());
  const refused = (i: number) => ({
    ...REGISTERED,
    outcome: 'check_failed',
    envId: `me/No${i}-v0`,
    sha256: 'a'.repeat(64),
  });
  let count = 0;
  while (!health.degraded) {
    store.note(refused(count++));
    await nextTurn();
  }
  store.note(refused(count++));
  await nextTurn();
  t.ok(health.report().bytes_waiting > 0);
  t.ok(auditOf(store).length < count);
  grow();
  await until(() => !health.degraded);
  t.same(
    auditOf(store).map(({ envId }) => envId),
    Array.from({ length: count }, (_, i) => `me/No${i}-v0`),
  );
  t.equal(health.report().bytes_waiting, 0);
});

t.test(
  'a transaction that SQLite has rolled back fails with the reason, not with "cannot rollback"',
  async t => {
    const { database } = fullStore(t.testdir());
    t.teardown(() => database.close());
    const fill = () =>
      inTransaction(database, () =>
        database.exec(`INSERT INTO audit (at, principal, action, env_id, kind, sha256)
        VALUES (1, '${'x'.repeat(10 * PAGE_BYTES)}', 'a', 'b', 'c', 'd')`),
      );
    t.throws(fill, { code: 'ERR_SQLITE_ERROR', message: 'database or disk is full' });
    t.throws(() => inTransaction(database, () => database.exec('nonsense')), /syntax error/);
    t.notOk(database.isTransaction);
    t.equal(
      inTransaction(database, () => 7),
      7,
    );
  },
);

t.test(
  'a registration on a full disk is a 507, /readyz and /metrics report it, and it works when there is room',
  async t => {
    const { store, health, grow } = fullStore(t.testdir());
    const parts = { registry: createRegistry(), storage: { store, health } };
    const { ask } = await silentApp(t, {}, parts);
    const ready = await ask('GET', '/readyz');
    t.match(JSON.parse(ready.text), {
      status: 'ok',
      persistence: { state: 'ok', since: null, reason: null },
    });
    const { env_id, definition } = EXAMPLES.script.value as { env_id: string; definition: JsonObject };
    const large = {
      env_id,
      definition: { ...definition, source: [...(definition.source as string[]), `//${'x'.repeat(20_000)}`] },
    };

    const refused = await ask('POST', '/v1/envs', large);
    t.match(refused.headers['content-type'], /^application\/problem\+json/);
    t.match(JSON.parse(refused.text), {
      status: 507,
      code: 'storage_full',
      retryable: true,
      detail: /^nothing was changed: no space is left/,
    });
    t.equal((await ask('GET', `/v1/envs/${encodeURIComponent(env_id)}`)).status, 404);
    const unready = await ask('GET', '/readyz');
    t.match(JSON.parse(unready.text), {
      status: 507,
      code: 'storage_full',
      persistence: { state: 'degraded', reason: /SQLITE_FULL/, since: /^\d{4}-.*Z$/, bytes_waiting: Number },
    });
    t.match(unready.headers['retry-after'], /^\d+$/);
    const { text } = await ask('GET', '/metrics');
    t.match(text, 'ragen_persistence_degraded{part="environments"} 1\n');
    t.match(text, /ragen_persistence_failures_total\{part="environments"\} [1-9]/);
    t.match(text, 'ragen_journal_bytes 0\n');
    t.equal(
      (await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0' })).status,
      201,
      'playing continues',
    );

    grow();
    await until(() => !health.degraded);
    t.equal((await ask('GET', '/readyz')).status, 200);
    t.equal((await ask('POST', '/v1/envs', large)).status, 201);
  },
);

t.test('health reports what fails, since when, and when it was made up for', async t => {
  const clock = { now: 5000 };
  const health = new PersistenceHealth(undefined, () => clock.now);
  t.same(health.report(), {
    state: 'ok',
    since: null,
    reason: null,
    bytes_waiting: 0,
    last_success_age_s: null,
  });
  health.succeeded('journal');
  clock.now += 1500;
  health.failed('checkpoint', systemError('EROFS'));
  health.waiting('journal', 10);
  t.match(health.report(), {
    state: 'degraded',
    reason: /EROFS/,
    bytes_waiting: 10,
    last_success_age_s: 1.5,
  });
  t.match(health.problem(), { code: 'storage_failed', status: 503 });
  health.failed('checkpoint', new Error('a bug'));
  t.match(health.report().reason, /the log of the server has the cause/);
  t.equal(health.parts.checkpoint.failures, 2);
  health.succeeded('journal');
  t.ok(health.degraded, 'one part does not make up for another');
  health.succeeded('checkpoint');
  t.notOk(health.degraded);
  t.equal(health.age('checkpoint'), 0);
});

t.test('a real full disk: journal and database continue when there is room', async t => {
  const folder = smallDisk(t, 512 * 1024);
  if (folder === undefined) {
    t.comment('skipped: a tmpfs cannot be mounted here');
    return;
  }
  const database = openDatabase(folder, 1000);
  const health = new PersistenceHealth();
  const store = new DatabaseStore(database, health);
  t.teardown(() => store.close());
  const journalFolder = join(folder, 'journal');
  const { journal, health: journalHealth } = openTestJournal(journalFolder);
  t.teardown(() => journal.close());
  journal.append('s', 'sA', 1, JSON.stringify('Left'));
  journal.flush();
  const free = fill(folder);
  await t.rejects(store.putEnvironment(environment('me/Large-v0', 20 * PAGE_BYTES), REGISTERED), {
    code: 'storage_full',
  });
  for (let n = 2; n <= 40; n++) journal.append('s', 'sA', n, JSON.stringify('x'.repeat(PAGE_BYTES)));
  t.ok(journal.flush() > 0);
  t.ok(journalHealth.degraded);
  free();
  await until(() => !health.degraded && !journalHealth.degraded);
  t.equal(await store.putEnvironment(environment('me/Large-v0', 20 * PAGE_BYTES), REGISTERED), true);
  journal.close();
  const { records, findings } = await replayed(journalFolder);
  t.same(
    records.map(record => Number(record.split(' ')[2])),
    Array.from({ length: 40 }, (_, i) => i + 1),
  );
  t.same(findings, { faults: [], incomplete: undefined });
});
