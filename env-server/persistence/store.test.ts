import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import t from 'tap';
import { DATABASE_FILE } from './database.ts';
import { type AuditEntry, openStore, type StoredEnvironment } from './store.ts';

const maze: StoredEnvironment = {
  envId: 'me/Maze-v0',
  kind: 'tabular',
  definition: { kind: 'tabular', title: 'Maze' },
  facts: {},
  owner: 'ann',
  revision: 1,
  registeredAt: 1000,
  replacedAt: null,
};
const entry: AuditEntry = {
  at: 1000,
  principal: 'ann',
  action: 'register',
  envId: 'me/Maze-v0',
  kind: 'tabular',
  sha256: 'ab',
  outcome: 'accepted',
};

t.test('environments and the audit log are there when the database is opened again', async t => {
  const folder = join(t.testdir(), 'made', 'on demand');
  const store = openStore(folder);
  t.equal(store.durable, true);
  store.putEnvironment(maze, entry);
  store.putEnvironment(
    { ...maze, envId: 'me/Other-v0', registeredAt: 900 },
    { ...entry, envId: 'me/Other-v0' },
  );
  store.putEnvironment({ ...maze, revision: 2, replacedAt: 2000 }, { ...entry, action: 'replace' });
  store.close();

  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(
    again.environments().map(environment => environment.envId),
    ['me/Other-v0', 'me/Maze-v0'],
  );
  t.same(again.environments()[1], { ...maze, revision: 2, replacedAt: 2000 });
  again.removeEnvironment('me/Maze-v0', { ...entry, action: 'remove' });
  t.equal(again.environments().length, 1);
  t.same(
    again.audit().map(({ action }) => action),
    ['register', 'register', 'replace', 'remove'],
  );
  t.same(again.audit()[0], entry);
});

t.test('what was committed is there although the database was never closed', async t => {
  const folder = t.testdir();
  openStore(folder).putEnvironment(maze, entry);
  const again = openStore(folder);
  t.teardown(() => again.close());
  t.same(again.environments(), [maze]);
});

t.test('an id is added once', async t => {
  const folder = t.testdir();
  const [one, other] = [openStore(folder), openStore(folder)];
  t.teardown(() => {
    one.close();
    other.close();
  });
  t.equal(one.putEnvironment(maze, entry), true);
  t.equal(other.putEnvironment({ ...maze, owner: 'bob' }, entry), false);
  t.equal(other.environments()[0].owner, 'ann');
  t.equal(other.audit().length, 1);
  t.equal(other.putEnvironment({ ...maze, revision: 2 }, entry), true);
});

t.test('a process sees that another one has written', async t => {
  const folder = t.testdir();
  const [one, other] = [openStore(folder), openStore(folder)];
  t.teardown(() => {
    one.close();
    other.close();
  });
  t.equal(one.changedElsewhere(), false);
  other.putEnvironment(maze, entry);
  t.equal(one.changedElsewhere(), true);
  t.equal(one.changedElsewhere(), false);
  one.removeEnvironment(maze.envId, entry);
  t.equal(one.changedElsewhere(), false, 'its own writes are none of others');
});

t.test('a write that fails leaves neither the environment nor its note', async t => {
  const store = openStore();
  t.teardown(() => store.close());
  t.equal(store.durable, false);
  const broken = { ...entry, sha256: null } as unknown as AuditEntry;
  t.throws(() => store.putEnvironment(maze, broken), /NOT NULL/);
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
