import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { DATABASE_FILE, openDatabase } from './database.ts';
import type { AuditEntry } from './environment-rows.ts';
import { lockFolder } from './lock.ts';
import { auditOf, MAZE, REGISTERED } from './store.test-data.ts';
import { openStore } from './store.ts';

t.test('a database that cannot be opened is named', t => {
  const folder = t.testdir({ [DATABASE_FILE]: {} });
  const path = join(folder, DATABASE_FILE);
  t.throws(() => openDatabase(folder, 0), {
    message: `${path}: unable to open database file; it must be a file that this user may read and write`,
  });
  t.end();
});

t.test('environments and the audit log survive reopening the database', async t => {
  const folder = join(t.testdir(), 'made', 'on demand');
  const store = openStore(folder);
  t.equal(store.durable, true);
  await store.putEnvironment(MAZE, REGISTERED);
  await store.putEnvironment(
    { ...MAZE, envId: 'me/Other-v0', registeredAt: 900 },
    { ...REGISTERED, envId: 'me/Other-v0' },
  );
  await store.putEnvironment(
    { ...MAZE, revision: 2, replacedAt: 2000 },
    { ...REGISTERED, action: 'replace' },
  );
  await store.close();

  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(
    again.environments().map(environment => environment.envId),
    ['me/Other-v0', 'me/Maze-v0'],
  );
  t.same(again.environments()[1], { ...MAZE, revision: 2, replacedAt: 2000 });
  await again.removeEnvironment('me/Maze-v0', { ...REGISTERED, action: 'remove' });
  t.equal(again.environments().length, 1);
  t.same(
    auditOf(again).map(({ action }) => action),
    ['register', 'register', 'replace', 'remove'],
  );
  t.same(auditOf(again)[0], REGISTERED);
});

t.test('commits survive without closing the database', async t => {
  const folder = t.testdir();
  const first = openStore(folder);
  t.teardown(() => first.close());
  await first.putEnvironment(MAZE, REGISTERED);
  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(again.environments(), [MAZE]);
});

t.test('an id is added once', async t => {
  const folder = t.testdir();
  const [one, other] = [openStore(folder), openStore(folder)];
  t.teardown(() => Promise.all([one.close(), other.close()]));
  t.equal(await one.putEnvironment(MAZE, REGISTERED), true);
  t.equal(await other.putEnvironment({ ...MAZE, owner: 'bob' }, REGISTERED), false);
  t.equal(other.environments()[0].owner, 'ann');
  t.equal(auditOf(other).length, 1);
  t.equal(await other.putEnvironment({ ...MAZE, revision: 2 }, REGISTERED), true);
});

t.test('a write that fails leaves neither the environment nor its note', async t => {
  const store = openStore();
  t.teardown(() => store.close());
  t.equal(store.durable, false);
  const broken = { ...REGISTERED, sha256: null } as unknown as AuditEntry;
  await t.rejects(store.putEnvironment(MAZE, broken), /NOT NULL/);
  t.same(store.environments(), []);
  t.same(auditOf(store), []);
});

t.test('a write waits for another process in a thread, not in the event loop', async t => {
  const folder = t.testdir();
  const store = openStore(folder);
  const holder = openDatabase(folder, 0);
  t.teardown(async () => {
    holder.close();
    await store.close();
  });
  holder.exec('BEGIN IMMEDIATE');
  const order: string[] = [];
  const put = store.putEnvironment(MAZE, REGISTERED).then(result => order.push(`written: ${result}`));
  store.note({ ...REGISTERED, outcome: 'check_failed' });
  await nextTurn();
  t.same(store.environments(), [], 'reading continues');
  order.push('the event loop went on');
  holder.exec('COMMIT');
  await put;
  t.same(order, ['the event loop went on', 'written: true']);
  t.same(store.environments(), [MAZE]);
});

t.test('a store that closes has written all requested records', async t => {
  const folder = t.testdir();
  const store = openStore(folder);
  store.note(REGISTERED);
  await store.close();
  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(auditOf(again), [REGISTERED]);
});

t.test(
  'a database that is not of this server is refused with the file and what to do, and left as it was',
  async t => {
    const cases: { readonly [name: string]: readonly [make: string, message: string] } = {
      'of another program': [
        'CREATE TABLE songs (title TEXT); CREATE TABLE sessions (x)',
        'FILE is a database of another program: it has the tables sessions, songs. Name another folder with --data, or move the file away',
      ],
      'of another program with versions': [
        'CREATE TABLE songs (title TEXT); PRAGMA user_version = 2',
        'FILE is a database of another program: it has the tables songs. Name another folder with --data, or move the file away',
      ],
      'of a newer version': [
        'PRAGMA user_version = 99',
        'the database FILE has version 99, this server knows up to 3: run the newer server that wrote it, or name another folder with --data',
      ],
    };
    for (const [name, [make, message]] of Object.entries(cases)) {
      const folder = t.testdir();
      const file = join(folder, DATABASE_FILE);
      if (name === 'of a newer version') await openStore(folder).close();
      const database = new DatabaseSync(file);
      database.exec(make);
      database.close();
      const before = readFileSync(file);
      t.throws(
        () => openStore(folder),
        { name: 'ForeignDatabase', message: message.replace('FILE', file) },
        name,
      );
      t.same(readFileSync(file), before);
    }
  },
);

t.test('a database or lock that another program uses is named', t => {
  const folder = t.testdir({ 'sessions.lock': 'this is not a database, but it has a line of text' });
  t.throws(() => lockFolder(folder), {
    message: /sessions\.lock is not a lock of this server; move it away/,
  });
  const file = join(folder, DATABASE_FILE);
  const other = new DatabaseSync(file);
  other.exec('BEGIN EXCLUSIVE');
  t.throws(() => openDatabase(folder, 1), {
    message: `the database ${file} is locked by another program; end that, or name another folder with --data`,
  });
  other.close();
  t.end();
});
