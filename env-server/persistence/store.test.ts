import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t from 'tap';
import { DATABASE_FILE } from './database.ts';
import { MAZE, REGISTERED } from './store.test-data.ts';
import { type AuditEntry, openStore } from './store.ts';

t.test('environments and the audit log are there when the database is opened again', async t => {
  const folder = join(t.testdir(), 'made', 'on demand');
  const store = openStore(folder);
  t.equal(store.durable, true);
  store.putEnvironment(MAZE, REGISTERED);
  store.putEnvironment(
    { ...MAZE, envId: 'me/Other-v0', registeredAt: 900 },
    { ...REGISTERED, envId: 'me/Other-v0' },
  );
  store.putEnvironment({ ...MAZE, revision: 2, replacedAt: 2000 }, { ...REGISTERED, action: 'replace' });
  store.close();

  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(
    again.environments().map(environment => environment.envId),
    ['me/Other-v0', 'me/Maze-v0'],
  );
  t.same(again.environments()[1], { ...MAZE, revision: 2, replacedAt: 2000 });
  again.removeEnvironment('me/Maze-v0', { ...REGISTERED, action: 'remove' });
  t.equal(again.environments().length, 1);
  t.same(
    again.audit().map(({ action }) => action),
    ['register', 'register', 'replace', 'remove'],
  );
  t.same(again.audit()[0], REGISTERED);
});

t.test('commits survive without closing the database', async t => {
  const folder = t.testdir();
  openStore(folder).putEnvironment(MAZE, REGISTERED);
  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(again.environments(), [MAZE]);
});

t.test('an id is added once', async t => {
  const folder = t.testdir();
  const [one, other] = [openStore(folder), openStore(folder)];
  t.teardown(() => {
    one.close();
    other.close();
  });
  t.equal(one.putEnvironment(MAZE, REGISTERED), true);
  t.equal(other.putEnvironment({ ...MAZE, owner: 'bob' }, REGISTERED), false);
  t.equal(other.environments()[0].owner, 'ann');
  t.equal(other.audit().length, 1);
  t.equal(other.putEnvironment({ ...MAZE, revision: 2 }, REGISTERED), true);
});

t.test('a process sees that another one has written', async t => {
  const folder = t.testdir();
  const [one, other] = [openStore(folder), openStore(folder)];
  t.teardown(() => {
    one.close();
    other.close();
  });
  t.equal(one.changedElsewhere(), false);
  other.putEnvironment(MAZE, REGISTERED);
  t.equal(one.changedElsewhere(), true);
  t.equal(one.changedElsewhere(), false);
  one.removeEnvironment(MAZE.envId, REGISTERED);
  t.equal(one.changedElsewhere(), false, 'its own writes are none of others');
});

t.test('a write that fails leaves neither the environment nor its note', async t => {
  const store = openStore();
  t.teardown(() => store.close());
  t.equal(store.durable, false);
  const broken = { ...REGISTERED, sha256: null } as unknown as AuditEntry;
  t.throws(() => store.putEnvironment(MAZE, broken), /NOT NULL/);
  t.same(store.environments(), []);
  t.same(store.audit(), []);
});

t.test('a database of a newer version is refused', async t => {
  const folder = t.testdir();
  openStore(folder).close();
  const database = new DatabaseSync(join(folder, DATABASE_FILE));
  database.exec('PRAGMA user_version = 99');
  database.close();
  t.throws(() => openStore(folder), /version 99.*newer server/);
});
