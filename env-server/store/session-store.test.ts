import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { Random } from '../../shared/random.ts';
import { PersistenceHealth } from '../persistence/persistence-health.ts';
import {
  countedEntries,
  type NewSession,
  type SessionStore,
  type StoredChange,
  type StoredContent,
} from './session-store.ts';
import { SqliteSessionStore } from './sqlite-session-store.ts';
import { lacksValkey, testStore, testValkey } from './valkey.test-data.ts';

/** The contract of both stores: the server that follows another one finds what that one has kept, and nothing else. */

const LIMITS = [100_000, 100_000, 100_000] as const;
const FORGET_MS = 60_000;
const SILENT = pino({ level: 'silent' });
const HAND_OVERS = 12;
const SESSIONS = 6;
const ACTIONS = 60;

/** One server after the other on the same sessions; each one is killed when the next one comes. */
interface Servers {
  next(): Promise<SessionStore>;
  /** Resolves when a server may answer what it did. */
  answered(store: SessionStore): Promise<void>;
}

/** Each server has a copy of the folder as it was on the disk when the one before was killed. */
function sqliteServers(t: Test): Servers {
  let data: string | undefined;
  return {
    async next() {
      const folder = mkdtempSync(join(tmpdir(), 'ragen-store-'));
      t.teardown(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20 }));
      if (data !== undefined) cpSync(data, folder, { recursive: true });
      data = folder;
      const store = new SqliteSessionStore(
        { data, durability: 'journal', journalMaxMb: 64 },
        { health: new PersistenceHealth(), log: SILENT, now: Date.now, onPressure: () => undefined },
      );
      t.teardown(() => store.close(false));
      store.history();
      await store.readRecords(() => undefined, new AbortController().signal);
      return store;
    },
    answered: store =>
      new Promise(resolve => (store as SqliteSessionStore).journal!.deliver(() => resolve())),
  };
}

async function valkeyServers(t: Test): Promise<Servers> {
  const valkey = await testValkey(t);
  let replica = 0;
  return { next: () => testStore(t, valkey, `r${replica++}`), answered: () => Promise.resolve() };
}

const STORES = [
  { name: 'SQLite', skip: false, serversOf: async (t: Test) => sqliteServers(t) },
  { name: 'Valkey', skip: lacksValkey, serversOf: valkeyServers },
];

const fresh = (id: string, more: Partial<NewSession> = {}): NewSession => ({
  id,
  serial: 1,
  settings: { id },
  edition: 'e1',
  groupId: null,
  pinned: false,
  ttlMs: 60_000,
  record: `{"seed":1,"owner":"me","edition":"e1","of":"${id}"}`,
  ...more,
});

const ends = { actions: 0, snapshot: 0, reply: 0, dropped: 0 };

/** A checkpoint of a session with this many records; with these, its head says what it has. */
const change = (recorded: number, more: Partial<StoredChange> = {}, covered: readonly string[] = []) => ({
  owner: 'me',
  edition: 'e1',
  settings: '{"id":"x"}',
  head: { recorded, ends, covered: [...covered] },
  parts: [],
  remove: [],
  ...more,
});

async function taken(store: SessionStore, id: string): Promise<StoredContent> {
  const found = await store.take(id, undefined, 'me', FORGET_MS);
  if (found.state !== 'load') throw new Error(`${id} is ${found.state}`);
  return found.content;
}

const named = ({ entries }: StoredContent) => countedEntries(entries).map(({ kind, n }) => `${kind}${n}`);

/** Number of a checkpoint after `n` records: among several servers it is a record itself. */
const numberOf = ({ isShared }: SessionStore, n: number) => (isShared ? n + 1 : n);

for (const { name, skip, serversOf } of STORES) {
  t.test(`${name}: the next server finds sessions and their records, in order`, { skip }, async t => {
    const { next, answered } = await serversOf(t);
    const first = await next();
    t.equal(await first.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2', { serial: 2 })]), undefined);
    for (let n = 2; n <= 70; n++) t.equal(await first.append('s1', 1, n, 's', String(n)), 'kept');
    t.equal(await first.append('s2', 1, 2, 'f', ''), 'kept', 'a record without a body');
    await answered(first);
    const second = await next();
    const found = await taken(second, 's1');
    t.equal(named(found).length, 70);
    t.same(
      countedEntries(found.entries).slice(-2),
      [69, 70].map(n => ({ epoch: 1, n, kind: 's', body: String(n) })),
    );
    t.match(JSON.parse(found.entries[0].body), { seed: 1, of: 's1' });
    t.same(named(await taken(second, 's2')), ['o1', 'f2']);
    t.same(
      await second.take('s3', undefined, 'me', FORGET_MS),
      { state: 'ended', tombstone: undefined },
      'one that never was',
    );
  });

  t.test(`${name}: a checkpoint has what came before it, records follow it`, { skip }, async t => {
    const { next, answered } = await serversOf(t);
    const first = await next();
    await first.open('me', 'E', LIMITS, [fresh('s1')]);
    for (let n = 2; n <= 5; n++) await first.append('s1', 1, n, 's', '1');
    let n = numberOf(first, 5);
    const parts = [0, 1].map(number => ({ kind: 'actions', number, data: `[${number}]` }) as const);
    t.equal(await first.checkpoint('s1', { epoch: 1, n }, change(5, { parts })), 'kept');
    t.equal(await first.append('s1', 1, ++n, 's', '2'), 'kept');
    await answered(first);
    const second = await next();
    const found = await taken(second, 's1');
    t.same(named(found), [`C${numberOf(first, 5)}`, `s${n}`]);
    t.match(JSON.parse(found.entries.find(({ kind }) => kind === 'C')!.body), { recorded: 5 });
    t.same(found.parts, parts);
    const later = { epoch: found.epoch, n: numberOf(second, n) };
    const less = { settings: null, parts: [{ ...parts[0], number: 2 }], remove: [parts[0]] };
    t.equal(await second.checkpoint('s1', later, change(n, less)), 'kept');
    const third = await taken(await next(), 's1');
    t.same(
      third.parts.map(({ number }) => number),
      [1, 2],
    );
    t.same(JSON.parse(third.settings ?? '{}').id, second.isShared ? 's1' : 'x', 'settings stay');
  });

  t.test(`${name}: a checkpoint and an end follow the records of their turn`, { skip }, async t => {
    const { next, answered } = await serversOf(t);
    const first = await next();
    await first.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2', { serial: 2 })]);
    const n = numberOf(first, 2);
    const closed = { owner: 'me', ending: 'session_closed' } as const;
    const turn = await Promise.all([
      first.append('s1', 1, 2, 's', '"a"'),
      first.checkpoint('s1', { epoch: 1, n }, change(2)),
      first.append('s1', 1, n + 1, 's', '"b"'),
      first.append('s2', 1, 2, 's', '"c"'),
      first.end('s2', { epoch: 1, n: 3, hasCheckpoint: false }, closed, FORGET_MS),
    ]);
    t.same(turn, Array(5).fill('kept'));
    await answered(first);
    const second = await next();
    t.same(named(await taken(second, 's1')), [`C${n}`, `s${n + 1}`]);
    t.match(await second.take('s2', undefined, 'me', FORGET_MS), { state: 'ended', tombstone: closed });
  });

  t.test(`${name}: a session that ended stays ended, and says how`, { skip }, async t => {
    const { next, answered } = await serversOf(t);
    const first = await next();
    await first.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2', { serial: 2 })]);
    await first.checkpoint('s2', { epoch: 1, n: numberOf(first, 1) }, change(1));
    const closed = { owner: 'me', ending: 'session_closed' } as const;
    const lost = { owner: 'me', ending: 'session_lost', reason: 'why' } as const;
    t.equal(await first.end('s1', { epoch: 1, n: 2, hasCheckpoint: false }, closed, FORGET_MS), 'kept');
    t.equal(await first.end('s2', { epoch: 1, n: 2, hasCheckpoint: true }, lost, FORGET_MS), 'kept');
    await answered(first);
    const second = await next();
    t.match(await second.take('s1', undefined, 'me', FORGET_MS), { state: 'ended', tombstone: closed });
    t.match(await second.take('s2', undefined, 'me', FORGET_MS), { state: 'ended', tombstone: lost });
  });

  t.test(`${name}: what cannot be made text is refused, and what was there stays`, { skip }, async t => {
    const { next, answered } = await serversOf(t);
    const first = await next();
    await first.open('me', 'E', LIMITS, [fresh('s1'), fresh('s2', { serial: 2 })]);
    await answered(first);
    const at = { epoch: 1, n: numberOf(first, 1) };
    const odd = change(1, { head: { big: 1n } as never });
    const broken = change(1, {
      parts: {
        [Symbol.iterator]() {
          throw new TypeError('no text');
        },
      },
    });
    const outcomes = await Promise.allSettled([
      first.checkpoint('s1', at, odd),
      first.checkpoint('s1', at, broken),
      first.checkpoint('s2', at, change(1)),
    ]);
    t.match(outcomes, [
      { status: 'rejected', reason: { name: 'NotStorable', message: /BigInt/ } },
      { status: 'rejected', reason: { name: 'NotStorable', message: 'no text' } },
      { status: 'fulfilled', value: 'kept' },
    ]);
    const second = await next();
    t.same(named(await taken(second, 's1')), ['o1']);
    t.same(named(await taken(second, 's2')), [`C${at.n}`]);
  });

  t.test(
    `${name}: each acknowledged record of servers that follow each other counts once, in order`,
    { skip, timeout: 120_000 },
    async t => {
      const { next, answered } = await serversOf(t);
      const rng = Random.fromSeed(11);
      const sessions = new Map<
        string,
        { epoch: number; n: number; kept: string[]; hasCheckpoint: boolean }
      >();
      const sums = { append: 0, checkpoint: 0, end: 0, take: 0 };
      let opened = 0;
      for (let server = 0; server < HAND_OVERS; server++) {
        const store = await next();
        for (const [id, session] of sessions) {
          const content = await taken(store, id);
          const [head, ...rest] = countedEntries(content.entries);
          const covered = head.kind === 'C' ? (JSON.parse(head.body) as { covered: string[] }).covered : [];
          t.same([...covered, ...rest.map(({ body }) => body)], session.kept, `${id} at server ${server}`);
          session.epoch = content.epoch;
          sums.take++;
        }
        while (sessions.size < SESSIONS) {
          const id = `s${++opened}`;
          await store.open('me', 'E', LIMITS, [fresh(id, { serial: opened })]);
          sessions.set(id, { epoch: 1, n: 1, kept: [], hasCheckpoint: false });
        }
        for (let action = 0; action < ACTIONS; action++) {
          const [id, session] = rng.choice([...sessions]);
          const { epoch } = session;
          if (rng.chance(0.15)) {
            const covering = change(session.n, {}, session.kept);
            if (store.isShared) session.n++;
            t.equal(await store.checkpoint(id, { epoch, n: session.n }, covering), 'kept');
            session.hasCheckpoint = true;
            sums.checkpoint++;
          } else if (rng.chance(0.02)) {
            const at = { epoch, n: session.n + 1, hasCheckpoint: session.hasCheckpoint };
            await store.end(id, at, { owner: 'me', ending: 'session_closed' }, FORGET_MS);
            sessions.delete(id);
            sums.end++;
          } else {
            const burst = Array.from(
              { length: 1 + rng.integer(5) },
              () => `"${server}.${action}.${++session.n}"`,
            );
            const first = session.n - burst.length + 1;
            const outcomes = burst.map((body, i) => store.append(id, epoch, first + i, 's', body));
            t.ok((await Promise.all(outcomes)).every(outcome => outcome === 'kept'));
            session.kept.push(...burst);
            sums.append += burst.length;
          }
        }
        await answered(store);
      }
      t.ok(sums.append > 500 && sums.checkpoint > 50 && sums.end > 3 && sums.take > 30, JSON.stringify(sums));
    },
  );
}
