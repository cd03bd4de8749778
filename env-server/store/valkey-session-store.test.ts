import { setImmediate as nextTurn } from 'node:timers/promises';
import { pino } from 'pino';
import t from 'tap';
import { Random } from '../../shared/random.ts';
import { until } from '../../test/until.test-data.ts';
import { storeAddressOf } from './address.ts';
import { StoreConnection } from './connection.ts';
import { countedEntries, type NewSession, type Outcome, type StoredChange } from './session-store.ts';
import { SharedEnvironments } from './shared-environments.ts';
import { lacksValkey, testStore, testValkey } from './valkey.test-data.ts';
import type { ValkeySessionStore } from './valkey-session-store.ts';

const LIMITS = [100_000, 100_000, 100_000] as const;
const FORGET_MS = 60_000;
/** Longer than a command may take. */
const PAUSE_MS = 5500;
const HISTORIES = 60;
const ACTIONS = 60;

const fresh = (id: string, serial = 1, more: Partial<NewSession> = {}): NewSession => ({
  id,
  serial,
  settings: { id },
  edition: 'e1',
  groupId: null,
  pinned: false,
  ttlMs: 60_000,
  record: '{"seed":1}',
  ...more,
});

/** A position in the first epoch. */
const at = (n: number) => ({ epoch: 1, n, hasCheckpoint: false });

const change = (more: Partial<StoredChange> = {}): StoredChange => ({
  owner: 'me',
  edition: 'e1',
  settings: null,
  head: {},
  parts: [],
  remove: [],
  ...more,
});

async function taken(store: ValkeySessionStore, id: string) {
  const found = await store.take(id, undefined, 'me', FORGET_MS);
  if (found.state !== 'load') throw new Error(`${id} is ${found.state}`);
  return found.content;
}

t.test('an answer counts that came while the process was paused', { skip: lacksValkey }, async t => {
  const store = await testStore(t, await testValkey(t), 'a');
  await nextTurn();
  const counted = store.count();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE_MS);
  t.equal(await counted, 0);
  t.equal(store.connection.failure, undefined);
});

t.test('sessions open within the limits, all or none', { skip: lacksValkey }, async t => {
  const store = await testStore(t, await testValkey(t), 'a');
  t.equal(await store.open('me', 'E', [3, 2, 9], [fresh('s1'), fresh('s2', 2)]), undefined);
  t.same(await store.open('me', 'E', [3, 2, 9], [fresh('s3', 3)]), { limit: 1, open: 2 });
  t.same(await store.open('you', 'E', [3, 9, 9], [fresh('s4', 4), fresh('s5', 5)]), { limit: 0, open: 2 });
  t.same(await store.open('you', 'E', [9, 9, 2], [fresh('s6', 6)]), { limit: 2, open: 2 });
  t.same((await store.list('me', 0)).ids, ['s1', 's2']);
  t.same((await store.list('me', 1)).ids, ['s2']);
  t.same(await store.newest(undefined, 1), ['s2']);
  t.equal(await store.count('E'), 2);
  t.equal(await store.end('s1', at(1), { owner: 'me', ending: 'session_closed' }, FORGET_MS), 'kept');
  t.equal(await store.end('s1', at(1), { owner: 'me', ending: 'session_closed' }, FORGET_MS), 'gone');
  t.equal(await store.count(), 1);
  t.match(await store.take('s1', undefined, 'me', FORGET_MS), {
    state: 'ended',
    tombstone: { ending: 'session_closed' },
  });
  t.match(
    await store.take('s2', undefined, 'you', FORGET_MS),
    { state: 'ended', tombstone: undefined },
    'of another client',
  );
});

t.test('a server that another has followed cannot write', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
  await a.open('me', 'E', LIMITS, [fresh('s1')]);
  t.equal(await a.append('s1', 1, 2, 's', '"x"'), 'kept');
  t.ok(await a.isWriter('s1', 1));
  const { epoch, entries } = await taken(b, 's1');
  t.equal(epoch, 2);
  t.same(
    countedEntries(entries).map(({ kind, n }) => `${kind}${n}`),
    ['o1', 's2'],
  );
  t.equal(await a.append('s1', 1, 3, 's', '"late"'), 'fenced');
  t.notOk(await a.isWriter('s1', 1));
  t.equal(await a.end('s1', at(1), { owner: 'me', ending: 'session_closed' }, FORGET_MS), 'fenced');
  t.equal(
    await a.checkpoint('s1', at(3), change({ parts: [{ kind: 'reply', number: 1, data: 'x' }] })),
    'fenced',
  );
  t.equal((await taken(a, 's1')).parts.length, 0, 'nothing of a refused checkpoint is written');
});

t.test(
  'a server that takes a session again finds the record of the same turn',
  { skip: lacksValkey },
  async t => {
    const store = await testStore(t, await testValkey(t), 'a');
    await store.open('me', 'E', LIMITS, [fresh('s1')]);
    const [kept, found] = await Promise.all([store.append('s1', 1, 2, 's', '"x"'), taken(store, 's1')]);
    t.equal(kept, 'kept');
    t.same(
      countedEntries(found.entries).map(({ kind, n }) => `${kind}${n}`),
      ['o1', 's2'],
    );
  },
);

t.test('a checkpoint trims what it covers, and the fence holds', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
  await a.open('me', 'E', LIMITS, [fresh('s1')]);
  for (let n = 2; n <= 5; n++) await a.append('s1', 1, n, 's', '1');
  t.equal(
    await a.checkpoint(
      's1',
      at(6),
      change({
        head: { head: 1 },
        parts: [{ kind: 'actions', number: 0, data: '[]' }],
        remove: [{ kind: 'actions', number: 9 }],
      }),
    ),
    'kept',
  );
  await a.append('s1', 1, 7, 's', '2');
  const found = await taken(b, 's1');
  t.same(
    countedEntries(found.entries).map(({ kind, n }) => `${kind}${n}`),
    ['C6', 's7'],
  );
  t.same(found.parts, [{ kind: 'actions', number: 0, data: '[]' }]);
  t.equal(await a.append('s1', 1, 8, 's', '3'), 'fenced');
  const known = `${found.epoch}-0`;
  t.match(await b.take('s1', known, 'me', FORGET_MS), { state: 'same', epoch: 3 });
});

t.test('expired sessions end once, and use moves their time', { skip: lacksValkey }, async t => {
  const store = await testStore(t, await testValkey(t), 'a');
  await store.open('me', 'E', LIMITS, [
    fresh('s1', 1, { ttlMs: 1 }),
    fresh('s2', 2, { ttlMs: 1 }),
    fresh('s3', 3),
  ]);
  await store.touch([['s2', 60_000]]);
  await new Promise(resolve => setTimeout(resolve, 10));
  t.same(await store.expire(10, FORGET_MS), { ids: ['s1'], more: false });
  t.same(await store.expire(10, FORGET_MS), { ids: [], more: false });
  t.match(await store.take('s1', undefined, 'me', FORGET_MS), {
    state: 'ended',
    tombstone: { ending: 'session_expired', owner: 'me' },
  });
  t.equal(await store.count(), 2);
});

t.test(
  'a session that only one server can play is not taken from it while it lives',
  { skip: lacksValkey },
  async t => {
    const valkey = await testValkey(t);
    const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
    await a.live();
    await a.open('me', 'E', LIMITS, [fresh('s1', 1, { pinned: true })]);
    t.match(await b.take('s1', undefined, 'me', FORGET_MS), { state: 'elsewhere' });
    await a.connection.command(client => client.del('ragen:r:a'));
    t.match(await b.take('s1', undefined, 'me', FORGET_MS), {
      state: 'ended',
      tombstone: { ending: 'session_lost' },
    });
  },
);

t.test('custom environments and replies are common', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
  const row = {
    envId: 'me/A-v0',
    kind: 'script',
    definition: {},
    facts: {},
    owner: 'me',
    revision: 1,
    registeredAt: 1,
    replacedAt: null,
  };
  const entry = {
    at: 1,
    principal: 'me',
    action: 'register',
    envId: 'me/A-v0',
    kind: 'script',
    sha256: '',
    outcome: 'accepted',
  } as const;
  const [one, two] = await Promise.all(
    [a, b].map(({ connection }) => SharedEnvironments.open(connection, pino({ level: 'silent' }))),
  );
  t.equal(await one.putEnvironment(row, entry), true);
  t.equal(await two.putEnvironment(row, entry), false, 'its id is taken');
  t.equal(await two.refresh(), true);
  t.same(two.environments(), [row]);
  t.equal(await two.refresh(), false);
  await two.removeEnvironment('me/A-v0', { ...entry, action: 'remove' });
  t.equal(await one.refresh(), true);
  t.same(one.environments(), []);
  t.same(await one.audit(9), { entries: [{ ...entry, action: 'remove' }, entry], next: undefined });
  await a.keepReply('me', 'k', { operation: 'create', asked: 'x', reply: { a: 1 } }, 60_000);
  t.same(await b.reply('me', 'k'), { operation: 'create', asked: 'x', reply: { a: 1 } });
  t.equal(await b.reply('you', 'k'), undefined);
});

/**
 * Three servers write one session at random, with a refused record among those in progress now and then. Every record that
 * was acknowledged must be counted once, in order, and nothing else.
 */
t.test(
  'every acknowledged record of any writer is counted once, in order',
  { skip: lacksValkey, timeout: 120_000 },
  async t => {
    const valkey = await testValkey(t);
    const stores = [
      await testStore(t, valkey, 'a'),
      await testStore(t, valkey, 'b'),
      await testStore(t, valkey, 'c'),
    ];
    const rng = Random.fromSeed(7);
    const sums = { kept: 0, fenced: 0, gone: 0 };
    for (let history = 0; history < HISTORIES; history++) {
      const id = `s${history}`;
      await stores[0].open('me', 'E', LIMITS, [fresh(id, history)]);
      const acknowledged: string[] = [];
      /** Belief of each server: epoch and number of its newest record; undefined before it has taken the session. */
      const copies: ({ epoch: number; n: number } | undefined)[] = [{ epoch: 1, n: 1 }, undefined, undefined];
      for (let action = 0; action < ACTIONS; action++) {
        const server = rng.integer(3);
        const copy = copies[server];
        if (!copy || rng.chance(0.1)) {
          const content = await taken(stores[server], id);
          copies[server] = { epoch: content.epoch, n: countedEntries(content.entries).at(-1)!.n };
          continue;
        }
        const burst = 1 + rng.integer(4);
        const refused = rng.chance(0.15) ? rng.integer(burst) : -1;
        const writes: Promise<Outcome>[] = [];
        const bodies: string[] = [];
        for (let i = 0; i < burst; i++) {
          const n = ++copy.n;
          bodies.push(`"${history}.${server}.${copy.epoch}.${n}"`);
          // A record that the store never sees leaves a hole, as one that it refuses does.
          writes.push(
            i === refused
              ? Promise.resolve('gone')
              : stores[server].append(id, copy.epoch, n, 's', bodies[i]),
          );
        }
        const outcomes = await Promise.all(writes);
        const failed = outcomes.findIndex(outcome => outcome !== 'kept');
        for (const outcome of outcomes) sums[outcome]++;
        acknowledged.push(...bodies.slice(0, failed < 0 ? burst : failed));
        if (failed >= 0) copies[server] = undefined;
        else if (rng.chance(0.1)) {
          const head = { covered: acknowledged.slice() };
          const kept = await stores[server].checkpoint(
            id,
            { epoch: copy.epoch, n: ++copy.n },
            change({ head }),
          );
          if (kept !== 'kept') copies[server] = undefined;
        }
      }
      const counted = countedEntries((await taken(stores[1], id)).entries);
      const [first, ...rest] = counted;
      const covered = first.kind === 'C' ? (JSON.parse(first.body) as { covered: string[] }).covered : [];
      t.same([...covered, ...rest.map(({ body }) => body)], acknowledged, id);
    }
    t.ok(sums.kept > 1000 && sums.fenced > 100 && sums.gone > 20, JSON.stringify(sums));
  },
);

t.test('a record that cannot be kept costs no other one of its turn', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
  const ids = ['s1', 's2', 's3', 's4'];
  await a.open(
    'me',
    'E',
    LIMITS,
    ids.map((id, i) => fresh(id, i)),
  );
  await taken(b, 's2');
  await b.end('s3', at(1), { owner: 'me', ending: 'session_closed' }, FORGET_MS);
  const outcomes = [2, 3].flatMap(n => ids.map(id => a.append(id, 1, n, 's', '"x"')));
  t.same(await Promise.all(outcomes), Array(2).fill(['kept', 'fenced', 'gone', 'kept']).flat());
  for (const [id, counted] of [
    ['s1', 3],
    ['s2', 1],
    ['s4', 3],
  ] as const)
    t.equal(countedEntries((await taken(b, id)).entries).length, counted, id);
});

t.test(
  'records of servers that take a session from each other in one turn count once, in order',
  { skip: lacksValkey, timeout: 120_000 },
  async t => {
    const valkey = await testValkey(t);
    const names = ['a', 'b', 'c'];
    const stores = await Promise.all(names.map(name => testStore(t, valkey, name)));
    await stores[0].open('me', 'E', LIMITS, [fresh('s1')]);
    const acknowledged: { epoch: number; n: number; body: string }[] = [];
    let fenced = 0;
    const play = async (store: ValkeySessionStore) => {
      for (let round = 0; round < 40; round++) {
        const { epoch, entries } = await taken(store, 's1');
        const last = countedEntries(entries).at(-1)!.n;
        const records = [1, 2, 3].map(i => ({
          epoch,
          n: last + i,
          body: `"${store.replica}.${round}.${i}"`,
        }));
        // Half of the time another server may come between two of them.
        const outcomes: Promise<Outcome>[] = [];
        for (const { n, body } of records) {
          outcomes.push(store.append('s1', epoch, n, 's', body));
          if (round % 2) await outcomes.at(-1);
        }
        const kept = (await Promise.all(outcomes)).indexOf('fenced');
        if (kept >= 0) fenced++;
        acknowledged.push(...records.slice(0, kept < 0 ? 3 : kept));
      }
    };
    await Promise.all(stores.map(play));
    const [, ...counted] = countedEntries((await taken(stores[0], 's1')).entries);
    t.same(
      counted.map(({ epoch, n, body }) => ({ epoch, n, body })),
      acknowledged.toSorted((x, y) => x.n - y.n),
    );
    t.ok(fenced > 10 && acknowledged.length > 20, `${fenced} fenced, ${acknowledged.length} acknowledged`);
  },
);

t.test('the commands of one turn have a bounded size', { skip: lacksValkey }, async t => {
  const store = await testStore(t, await testValkey(t), 'a');
  const sessions = Array.from({ length: 2500 }, (_, i) => fresh(`s${i}`, i, { ttlMs: 1 }));
  await store.open('me', 'E', LIMITS, sessions);
  const sent: [name: string, args: number][] = [];
  const { connection } = store;
  const run = connection.run.bind(connection);
  connection.run = (name, ...args) => {
    sent.push([name, args.length]);
    return run(name, ...args);
  };
  const ids = sessions.map(({ id }) => id);
  const kept = await Promise.all(ids.map(id => store.append(id, 1, 2, 's', '"x"')));
  t.ok(kept.every(outcome => outcome === 'kept'));
  t.same(sent.splice(0), [
    ['ragenAppend', 1000],
    ['ragenAppend', 1000],
    ['ragenAppend', 500],
  ]);
  const long = JSON.stringify('x'.repeat(600_000));
  const turn = await Promise.all(ids.slice(0, 3).map(id => store.append(id, 1, 3, 's', long)));
  t.same(turn, ['kept', 'kept', 'kept']);
  t.same(sent.splice(0).length, 3, 'also in bytes');
  const writers = await Promise.all(ids.map(id => store.isWriter(id, 1)));
  t.ok(writers.every(isWriter => isWriter));
  t.same(sent.splice(0), [
    ['ragenTops', 1000],
    ['ragenTops', 1000],
    ['ragenTops', 500],
  ]);
  await store.touch(ids.map(id => [id, 60_000]));
  t.same(sent.splice(0), [
    ['ragenTouch', 2000],
    ['ragenTouch', 2000],
    ['ragenTouch', 1000],
  ]);
  t.same((await store.expire(10, FORGET_MS)).ids, [], 'each of them was touched');
});

t.test(
  'sessions that no client could use for a while get their idle time again',
  { skip: lacksValkey },
  async t => {
    const valkey = await testValkey(t);
    const store = await testStore(t, valkey, 'a');
    const { connection } = store;
    const clock = () => connection.command(async client => 1000 * Number((await client.time())[0]));
    const seen = async (msAgo: number) => {
      const at = (await clock()) - msAgo;
      await connection.command(client => client.set('ragen:seen', at));
    };
    const dueIn = async (id: string) =>
      Number(await connection.command(client => client.zscore('ragen:due', id))) - (await clock());
    /** Opens a session that has been due for some time. */
    const openDue = async (id: string, msAgo: number) => {
      await store.open('me', 'E', LIMITS, [fresh(id, 1, { ttlMs: 5000 })]);
      await connection.command(client => client.zincrby('ragen:due', -5000 - msAgo, id));
    };
    const expired = async () => (await store.expire(10, FORGET_MS)).ids;
    await store.live();
    await openDue('s1', 15_000);
    await seen(1200);
    await store.live();
    t.same(await expired(), ['s1'], 'a slow round changes nothing');

    await openDue('s2', 15_000);
    await openDue('s3', 15_000);
    await seen(60_000);
    t.same(await expired(), [], 'no server was there for 60 s, and none has said yet that it is again');
    t.ok(Math.abs((await dueIn('s2')) - 5000) < 1500, `due in ${await dueIn('s2')} ms`);
    await connection.command(client => client.zincrby('ragen:due', -60_000, 's2'));
    t.match(await store.take('s2', undefined, 'me', FORGET_MS), { state: 'load' }, 'and another takes it');
    await store.live();
    await connection.command(client => client.zincrby('ragen:due', -60_000, 's2'));
    t.same(await expired(), [], 'its idle time counts from then on');
    await connection.command(client => client.incrby('ragen:back', -5100));
    await connection.command(client => client.zincrby('ragen:due', -60_000, 's2'));
    t.same(await expired(), ['s2'], 'and passes');

    await store.open('me', 'E', LIMITS, [fresh('s5', 2, { ttlMs: 200 })]);
    t.match(await store.take('s5', undefined, 'me', FORGET_MS), { state: 'load' });
    t.ok((await dueIn('s5')) > 3000, 'one that is taken has time until its server says that it is used');
    await store.open('me', 'E', LIMITS, [fresh('s6', 3, { ttlMs: 60_000 })]);
    await connection.command(client => client.zincrby('ragen:due', -50_000, 's6'));
    t.match(await store.take('s6', undefined, 'me', FORGET_MS), { state: 'load' });
    t.ok((await dueIn('s6')) > 55_000, 'a take is a use, after which its whole idle time is left');

    await openDue('s4', 500);
    await seen(2000);
    await testStore(t, valkey, 'b');
    t.same(await expired(), [], 'a server that starts finds that none was there');
  },
);

t.test('a full store refuses whole turns, and frees memory', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t, '--maxmemory', '6mb', '--maxmemory-policy', 'noeviction');
  const store = await testStore(t, valkey, 'a');
  const body = JSON.stringify('x'.repeat(100_000));
  let opened = 0;
  await t.rejects(
    (async () => {
      for (; opened < 200; opened++) {
        await store.open('me', 'E', LIMITS, [fresh(`s${opened}`, opened)]);
        await store.append(`s${opened}`, 1, 2, 's', body);
      }
    })(),
    { code: 'storage_full' },
  );
  t.ok(opened > 5);
  for (let i = 0; i < opened; i++)
    await store.end(`s${i}`, undefined, { owner: 'me', ending: 'session_closed' }, 0);
  await store.open('me', 'E', LIMITS, [fresh('after', 1000)]);
});

t.test(
  'a store that is not a store of ours is refused with what to change',
  { skip: lacksValkey },
  async t => {
    const valkey = await testValkey(t, '--maxmemory', '50mb', '--maxmemory-policy', 'allkeys-lru');
    await t.rejects(testStore(t, valkey, 'a'), { message: /maxmemory-policy is allkeys-lru.*noeviction/ });
    await t.rejects(testStore(t, { address: 'valkey+unix:///nowhere/s' }, 'a'), { message: /nowhere/ });
  },
);

t.test(
  'a client that gave up for good connects again, until the server closes',
  { skip: lacksValkey },
  async t => {
    const { address } = await testValkey(t);
    const connection = await StoreConnection.open(
      storeAddressOf(address),
      'journal',
      pino({ level: 'silent' }),
    );
    t.teardown(() => connection.close());
    let client: { readonly status: string } | undefined;
    await connection.command(async own => {
      client = own;
      own.disconnect();
    });
    await until(() => client!.status === 'end');
    t.match(connection.failure, /the connection was closed/);
    await until(() => connection.failure === undefined);
    t.equal(await connection.command(own => own.ping()), 'PONG');
    connection.close();
    await until(() => client!.status === 'end');
    await new Promise(resolve => setTimeout(resolve, 1500));
    t.equal(client!.status, 'end', 'it stays closed');
  },
);
