import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { DATABASE_FILE } from '../persistence/database.ts';
import type { Durability } from '../persistence/durability.ts';
import { PersistenceHealth } from '../persistence/persistence-health.ts';
import { countedEntries, type NewSession, type StoredChange } from './session-store.ts';
import { SqliteSessionStore } from './sqlite-session-store.ts';

/** The store of one server in a folder: whole checkpoints, and kills between any two of their writes. */

const SILENT = pino({ level: 'silent' });
const LIMITS = [9, 9, 9] as const;
const CLOCK = { server: 1, wall: 1, uptime: 1, boot: 'another start of the machine' };

async function opened(t: Test, data: string, durability: Durability = 'journal') {
  const store = new SqliteSessionStore(
    { data, durability, journalMaxMb: 64 },
    { health: new PersistenceHealth(), log: SILENT, now: () => 1e12, onPressure: () => undefined },
  );
  t.teardown(() => {
    store.seal();
    store.close(false);
  });
  const { ended } = store.history();
  await store.readRecords(() => undefined, new AbortController().signal);
  const kept = () => new Promise<void>(resolve => store.journal!.deliver(resolve));
  return { store, ended, kept };
}

/** The folder as it is on the disk now, and would be if the server were killed. */
function killed(t: Test, data: string): string {
  const copy = mkdtempSync(join(tmpdir(), 'ragen-store-'));
  t.teardown(() => rmSync(copy, { recursive: true, force: true, maxRetries: 20 }));
  cpSync(data, copy, { recursive: true });
  return copy;
}

const fresh = (id: string, record: object = { seed: 1 }): NewSession => ({
  id,
  serial: 1,
  settings: {},
  edition: 'e1',
  groupId: null,
  pinned: false,
  ttlMs: 1000,
  record: JSON.stringify({ owner: 'me', edition: 'e1', ...record }),
});

const ends = { actions: 9, snapshot: 0, reply: 0, dropped: 0 };
const change = (recorded: number, parts: StoredChange['parts'] = []): StoredChange => ({
  owner: 'me',
  edition: 'e1',
  settings: '{}',
  head: { recorded, ends },
  parts,
  remove: [],
});

const take = (store: SqliteSessionStore, id: string) => {
  const taken = store.take(id, undefined, undefined, 1000);
  if (taken.state !== 'load') return taken.state;
  return countedEntries(taken.content.entries).map(({ kind, n }) => `${kind}${n}`);
};

t.test('a checkpoint of all makes the records before it unneeded, and removes what ended', async t => {
  const data = t.testdir();
  const { store, kept } = await opened(t, data);
  store.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2')]);
  await kept();
  const journal = () => readdirSync(join(data, 'journal')).filter(name => name.endsWith('.journal'));
  t.equal(journal().length, 1);
  await store.checkpoint('s2', { epoch: 1, n: 1 }, change(1));
  store.end('s2', { epoch: 1, n: 2, hasCheckpoint: true }, { owner: 'me', ending: 'session_closed' }, 1000);
  await kept();
  const mark = store.mark();
  store.append('s1', 1, 2, 's', '1');
  await kept();
  await store.checkpoint('s1', { epoch: 1, n: 1 }, change(1));
  await store.conclude(mark, [['putClock', CLOCK]]);
  t.equal(journal().length, 1, 'what came after the mark stays');
  const next = await opened(t, killed(t, data));
  t.match(next.ended, [{ id: 's2', ending: 'session_closed', forgetAt: 1e12 + 1000 }]);
  t.same(next.store.ids(), ['s1']);
  t.same(take(next.store, 's1'), ['C1', 's2']);
});

t.test('a server that is killed at any point of a checkpoint loses nothing', async t => {
  const data = t.testdir();
  const { store, kept } = await opened(t, data);
  store.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2')]);
  for (let n = 2; n <= 5; n++) for (const id of ['s1', 's2']) store.append(id, 1, n, 's', '1');
  await kept();
  const states: string[] = [];
  const kill = async () => {
    const next = await opened(t, killed(t, data));
    const found = ['s1', 's2'].map(id => take(next.store, id));
    for (const entries of found) t.equal((entries as string[]).at(-1)?.slice(1), '5', String(entries));
    states.push(found.map(entries => (entries as string[])[0]).join());
  };
  const parts = [0, 1, 2, 3, 4].map(
    number => ({ kind: 'actions', number, data: 'x'.repeat(300_000) }) as const,
  );
  const mark = store.mark();
  for (const id of ['s1', 's2']) {
    await kill();
    for await (const _ of store.write(store.changesOf(id, change(5, parts)))) await kill();
  }
  await store.conclude(mark, [['putClock', CLOCK]]);
  await kill();
  t.same([...new Set(states)], ['o1,o1', 'C5,o1', 'C5,C5']);
  t.ok(states.length >= 8, `${states.length} kills`);
});

t.test('sessions of a group begin like the first, which is recorded once', async t => {
  const data = t.testdir();
  const { store, kept } = await opened(t, data);
  const first = { seed: 1, options: {}, episode: { state: 'large' } };
  store.open('me', 'E', LIMITS, [
    fresh('s1', first),
    fresh('s2', { like: 's1' }),
    fresh('s3', { like: 's9' }),
  ]);
  await kept();
  const next = await opened(t, killed(t, data));
  const likeOf = (id: string) => {
    const taken = next.store.take(id, undefined, undefined, 1000);
    return taken.state === 'load' ? taken.content.like : taken.state;
  };
  t.match(likeOf('s2'), { episode: { state: 'large' } });
  t.equal(likeOf('s1'), undefined);
  t.equal(likeOf('s3'), undefined, 'one that is unknown');
});

t.test(
  'after the machine went down rows may be older than what clients saw, unless they were synced',
  async t => {
    for (const [durability, isBehind] of [
      ['journal', true],
      ['fsync', false],
    ] as const) {
      const data = t.testdir({ [durability]: {} });
      const { store, kept } = await opened(t, join(data, durability), durability);
      store.open('me', 'E', LIMITS, [fresh('s1')]);
      await kept();
      await store.checkpoint('s1', { epoch: 1, n: 1 }, change(1));
      await store.conclude(store.mark(), [['putClock', CLOCK]]);
      const next = await opened(t, killed(t, join(data, durability)), durability);
      t.match(next.store.take('s1', undefined, undefined, 1000), { state: 'load', content: { isBehind } });
    }
  },
);

t.test('a journal of another version is kept under another name when a checkpoint releases it', async t => {
  const data = t.testdir();
  const { store, kept } = await opened(t, data);
  store.open('me', 'E', LIMITS, [fresh('s1')]);
  await kept();
  const copy = killed(t, data);
  const journal = join(copy, 'journal');
  const [name] = readdirSync(journal).filter(each => each.endsWith('.journal'));
  const damage = new DatabaseSync(join(journal, name));
  damage.exec(`UPDATE head SET json = json_set(json, '$.format', 99)`);
  damage.close();
  const { store: next } = await opened(t, copy);
  await next.conclude(next.mark(), [['putClock', CLOCK]]);
  const [aside] = readdirSync(journal).filter(each => /\.journal\.damaged-[\dTZ-]+$/.test(each));
  t.notOk(readdirSync(journal).includes(name));
  const left = new DatabaseSync(join(journal, aside), { readOnly: true });
  t.match(left.prepare('SELECT records FROM turns').get(), { records: /^os1 1 / });
  left.close();
});

t.test(
  'rows of an earlier form are given the one of today one by one; those that cannot be read stay',
  async t => {
    const data = t.testdir();
    const { store, kept } = await opened(t, data);
    for (const id of ['s1', 's2', 's3']) await store.checkpoint(id, { epoch: 1, n: 1 }, change(1));
    await kept();
    const copy = killed(t, data);
    const database = new DatabaseSync(join(copy, DATABASE_FILE));
    database.exec(`UPDATE sessions SET version = 1, settings = NULL, document = '"' || session_id || '"'`);
    database.close();
    const { store: next } = await opened(t, copy);
    const upgraded: string[] = [];
    const upgrade = (unreadable: string) =>
      next.upgrade(1, ({ document }) => {
        const id = JSON.parse(document!) as string;
        upgraded.push(id);
        if (id === unreadable) throw new Error('not what it seems');
        return change(0, [{ kind: 'actions', number: 0, data: `"${id}"` }]);
      });
    upgrade('s2');
    upgrade('s2');
    t.same(upgraded, ['s1', 's2', 's3', 's2'], 'each one once');
    t.match(next.take('s3', undefined, undefined, 1000), {
      state: 'load',
      content: { parts: [{ kind: 'actions', number: 0, data: '"s3"' }], settings: '{}' },
    });
    t.match(next.take('s2', undefined, undefined, 1000), {
      state: 'ended',
      tombstone: { ending: 'session_lost', reason: /another version/ },
    });
  },
);

t.test(
  'a store that is sealed writes no more in its thread, and the last write says what it has',
  async t => {
    const data = t.testdir();
    const { store, kept } = await opened(t, data);
    store.open('me', 'E', LIMITS, [fresh('s1')]);
    await kept();
    store.seal();
    await t.rejects(store.checkpoint('s1', { epoch: 1, n: 1 }, change(1)), /for the last time/);
    const written: string[] = [];
    store.writeNow([...store.changesOf('s1', change(1)), () => written.push('s1')]);
    t.same(written, ['s1']);
    store.concludeNow([
      ['mark', { id: 's1', standing: 'atRest' }],
      ['putClock', CLOCK],
    ]);
    t.equal(store.close(true), 0);
    const next = await opened(t, data);
    t.match(next.store.take('s1', undefined, undefined, 1000), {
      state: 'load',
      content: { isBehind: false },
    });
  },
);
