import { setTimeout as delay } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { TestApp } from '../../../test/app.test-data.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { listening } from '../../../test/wire.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import type { Outcome } from '../../store/session-store.ts';
import { lacksValkey, type TestValkey, testValkey } from '../../store/valkey.test-data.ts';
import type { ResetRequest } from '../../transports/openenv/messages.ts';
import { NamedSessions } from '../../transports/openenv/named-sessions.ts';
import type { OpenEnvPlay } from '../../transports/openenv/play.ts';
import type { Principal } from '../principal.ts';
import type { SharedSessions } from './shared-sessions.ts';

/** Faults between two servers on one store, each at the worst moment. */

t.setTimeout(180_000);

const COUNTER = { env_id: 'test/Counter-v0', config: { goal: 500, max_steps: 2000 } };

async function servers(
  t: Test,
  settings: Partial<Settings> = {},
): Promise<[a: TestApp, b: TestApp, valkey: TestValkey]> {
  const valkey = await testValkey(t);
  const both = { ...settings, store: valkey.address };
  return [await listening(t, both), await listening(t, both), valkey];
}

async function open({ ask }: TestApp, more: object = {}): Promise<string> {
  const { body, status, text } = await ask('POST', '/v1/sessions', { ...COUNTER, ...more });
  if (status !== 201) throw new Error(text);
  return body.session_id as unknown as string;
}

const step = ({ ask }: TestApp, id: string, headers = {}) =>
  ask('POST', `/v1/sessions/${id}/step`, { action: 'add' }, headers);
const sharedOf = ({ sessions }: TestApp) => sessions.recorder as SharedSessions;
const storeOf = (app: TestApp) => sharedOf(app).store;

/** Id of the newest record of a session in the store. */
const topOf = (app: TestApp, id: string) =>
  storeOf(app).connection.command(
    async client => (await client.xrevrange(`ragen:s:${id}`, '+', '-', 'COUNT', 1))[0]?.[0],
  );

/** Holds back what the store says of the next record that a server sends. */
function holdNextAppend(app: TestApp): { readonly kept: Promise<Outcome>; release(): void } {
  const store = storeOf(app);
  const append = store.append.bind(store);
  const held = Promise.withResolvers<void>();
  const sent = Promise.withResolvers<Outcome>();
  store.append = async (...record) => {
    store.append = append;
    const outcome = await append(...record);
    sent.resolve(outcome);
    await held.promise;
    return outcome;
  };
  return { kept: sent.promise, release: held.resolve };
}

t.test(
  'a step that was kept is not taken again when a read finds another server at the session',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a);
    const { kept, release } = holdNextAppend(a);
    const stepped = step(a, id);
    t.equal(await kept, 'kept');
    t.match(await step(b, id), { body: { step: 2 } });
    // The refusal is checked against the store, and finds that the copy here is behind.
    const checked = a.ask('POST', `/v1/sessions/${id}/step`, { action: 'add', expected_step: 9 });
    await delay(50);
    release();
    t.match(await stepped, { status: 200, body: { step: 1 } });
    t.match(await checked, { status: 409, body: { code: 'wrong_step' } });
    t.match(await step(a, id), { body: { step: 3 } });
  },
);

t.test(
  'a step that was kept is not taken again when the next one was fenced',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a);
    const { kept, release } = holdNextAppend(a);
    const first = step(a, id);
    t.equal(await kept, 'kept');
    t.match(await step(b, id), { body: { step: 2 } });
    const second = step(a, id);
    await delay(50);
    release();
    const steps = [await first, await second].map(({ body }) => Number(body.step));
    t.same(steps, [1, 3]);
    t.match(await step(b, id), { body: { step: 4 } });
  },
);

t.test('a record that overtakes the one before it acknowledges nothing', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  const store = storeOf(a);
  const append = store.append.bind(store);
  const held = Promise.withResolvers<void>();
  // As where the store had lost the script, and another server loads it between two commands of this one.
  store.append = async (...record) => {
    store.append = append;
    await held.promise;
    return append(...record);
  };
  const first = step(a, id);
  await until(() => a.sessions.get(id)?.episode.stepCount === 1);
  const second = step(a, id);
  await until(async () => (await topOf(a, id)) !== '1-1');
  held.resolve();
  const steps = [await first, await second].map(({ body }) => Number(body.step));
  t.same(
    steps.toSorted((x, y) => x - y),
    [1, 2],
  );
  t.match(await b.ask('GET', `/v1/sessions/${id}`), { body: { step: 2 } });
});

t.test('sessions that ended elsewhere do not count here', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t, { maxSessions: 2 });
  const ids = [await open(a), await open(a)];
  for (const id of ids) await b.ask('DELETE', `/v1/sessions/${id}`);
  t.ok(await open(a));
});

t.test('a session in use does not expire on any server', { skip: lacksValkey }, async t => {
  const [a] = await servers(t);
  const id = await open(a, { ttl_s: 1 });
  for (let n = 1; n <= 10; n++) {
    t.match(await step(a, id), { status: 200, body: { step: n } });
    await delay(350);
    a.wait(0.35);
  }
});

t.test(
  'a session idle for longer than its time is played on or expired, never unknown',
  { skip: lacksValkey },
  async t => {
    const [a] = await servers(t);
    const id = await open(a, { ttl_s: 1 });
    await delay(2100);
    a.wait(2.1);
    a.sessions.sweep();
    t.notOk(a.sessions.get(id), 'it left memory');
    t.match(await step(a, id), { status: 200, body: { step: 1 } }, 'the store has it a little longer');
    t.equal(await storeOf(a).count(), 1);
  },
);

t.test('a copy that leaves memory while its session is taken is loaded', { skip: lacksValkey }, async t => {
  const [a] = await servers(t);
  const id = await open(a, { ttl_s: 1 });
  t.match(await step(a, id), { status: 200, body: { step: 1 } });
  const store = storeOf(a);
  const take = store.take.bind(store);
  store.take = async (...given) => {
    store.take = take;
    const taken = await take(...given);
    t.equal(taken.state, 'same');
    a.wait(2.1);
    t.notOk(a.sessions.get(id), 'it left memory');
    return taken;
  };
  // As after a lost connection.
  store.connection.onReconnect();
  t.match(await step(a, id), { status: 200, body: { step: 2 } });
});

/** Runs something, and gives a session the content in the store that it had before, as a primary does that lacks the newest. */
async function loseFromStore(app: TestApp, id: string, work: () => Promise<unknown>): Promise<void> {
  const { connection } = storeOf(app);
  const keys = [`ragen:s:${id}`, `ragen:p:${id}`];
  const before = await connection.command(client => Promise.all(keys.map(key => client.dumpBuffer(key))));
  await work();
  await connection.command(async client => {
    for (const [i, key] of keys.entries()) await client.restore(key, 0, before[i], 'REPLACE');
    await client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no').catch(() => undefined);
  });
  await until(() => connection.failure !== undefined);
  await until(() => connection.failure === undefined);
}

t.test(
  'a lost step rolls its session back; a lost take or checkpoint does not',
  { skip: lacksValkey },
  async t => {
    const [a] = await servers(t);
    const id = await open(a);
    await step(a, id);
    await loseFromStore(a, id, () => sharedOf(a).settle());
    t.match(await step(a, id), { status: 200, body: { step: 2 } }, 'a checkpoint');
    await loseFromStore(a, id, async () => {
      await loseFromStore(a, id, async () => undefined);
      t.match(await a.ask('GET', `/v1/sessions/${id}`), { body: { step: 2 } });
    });
    t.match(await step(a, id), { status: 200, body: { step: 3 } }, 'a take');
    await loseFromStore(a, id, async () => t.match(await step(a, id), { body: { step: 4 } }));
    t.match(await step(a, id), { status: 409, body: { code: 'session_rolled_back' } });
    t.match(await a.ask('GET', `/v1/sessions/${id}`), { body: { step: 3 } });
    t.match(await step(a, id), { status: 200, body: { step: 4 } });
  },
);

t.test(
  '--durability replicated gives no reply to a repeated request before a replica has its record',
  { skip: lacksValkey },
  async t => {
    const port = await freePort();
    const valkey = await testValkey(t, '--port', String(port), '--repl-diskless-sync-delay', '0');
    const replica = await testValkey(t, '--replicaof', `127.0.0.1 ${port}`);
    const settings = { store: valkey.address, durability: 'replicated' } as const;
    const [a, b] = [await listening(t, settings), await listening(t, settings)];
    const opening = (app: TestApp, key: string) =>
      app.ask('POST', '/v1/sessions', COUNTER, { 'idempotency-key': key });
    await until(async () => (await opening(a, 'o1')).status === 201);
    const id = String((await opening(a, 'o1')).body.session_id);
    replica.signal('SIGSTOP');
    const refused = { status: 503, body: { code: 'storage_failed' } };
    for (const app of [a, a, b, b]) {
      t.match(await step(app, id, { 'idempotency-key': 'k' }), refused);
      t.match(await opening(app, 'o2'), refused);
    }
    replica.signal('SIGCONT');
    await until(async () => (await opening(b, 'o2')).status === 201);
    t.match(await step(b, id, { 'idempotency-key': 'k' }), { status: 200, body: { step: 1 } });
    t.equal((await opening(a, 'o2')).body.session_id, (await opening(b, 'o2')).body.session_id);
    t.equal(await storeOf(a).count(), 2);
    // The client sends a script again that the store has lost, after the command that waits for the replica.
    await storeOf(b).connection.command(client => client.script('FLUSH'));
    for (let n = 0; n < 2; n++) await storeOf(b).confirm();
    replica.signal('SIGSTOP');
    t.match(await step(b, id, { 'idempotency-key': 'l' }), refused);
    replica.signal('SIGCONT');
  },
);

t.test('a record of a newer version is left to newer servers', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  await step(a, id);
  await storeOf(a).append(id, 1, 3, 'z' as never, '{}');
  t.match(await step(b, id), {
    status: 503,
    body: { code: 'storage_failed', detail: /newer version/ },
    headers: { 'retry-after': /\d/ },
  });
  t.equal(await storeOf(a).count(), 1, 'it is still there');
  t.equal(b.sessions.size, 0, 'and no half of it in memory');
});

t.test('closing a session that another server has taken closes it', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  await step(b, id);
  const [, closed] = await Promise.all([step(a, id), a.ask('DELETE', `/v1/sessions/${id}`)]);
  t.equal(closed.status, 204);
  t.equal(await storeOf(a).count(), 0);
  t.match(await step(b, id), { status: 410, body: { code: 'session_closed' } });
});

t.test(
  'a request key opens sessions once, also where their server ended before the reply was kept',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const key = { 'idempotency-key': 'one' };
    const request = { ...COUNTER, count: 40, seed: 3 };
    const store = storeOf(a);
    store.keepReply = () => new Promise(() => undefined);
    a.ask('POST', '/v1/sessions', request, key).catch(() => undefined);
    while ((await store.count()) === 0) await delay(10);
    const opened = await b.ask('POST', '/v1/sessions', request, key);
    t.equal(opened.status, 201, opened.text);
    t.equal((opened.body.sessions as unknown as unknown[]).length, 40);
    t.equal(await store.count(), 40);
    t.match(await step(b, opened.body.session_id as unknown as string), { body: { step: 1 } });
    t.match(await b.ask('POST', '/v1/sessions', COUNTER, key), { body: { code: 'key_reused' } });
  },
);

t.test(
  'requests under one key that come at once at two servers open one group',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    for (let n = 0; n < 10; n++) {
      const both = [a, b].map(({ ask }) =>
        ask('POST', '/v1/sessions', { ...COUNTER, count: 3 }, { 'idempotency-key': `k${n}` }),
      );
      const [one, two] = await Promise.all(both);
      t.equal(one.status, 201, one.text);
      t.equal(one.body.session_id, two.body.session_id, two.text);
      t.equal(await storeOf(a).count(), 3 * (n + 1));
    }
  },
);

t.test('clones are made once where the reply under their key was fenced', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  const store = storeOf(a);
  const openInStore = store.open.bind(store);
  store.open = async (...sessions) => {
    store.open = openInStore;
    const opened = await openInStore(...sessions);
    await step(b, id);
    return opened;
  };
  const cloned = await a.ask('POST', `/v1/sessions/${id}/clone`, { count: 2 }, { 'idempotency-key': 'c' });
  t.equal(cloned.status, 201, cloned.text);
  const again = await b.ask('POST', `/v1/sessions/${id}/clone`, { count: 2 }, { 'idempotency-key': 'c' });
  t.same(again.body.sessions, cloned.body.sessions);
  t.equal(await store.count(), 3);
});

t.test(
  'clones are made once where their server ended before the reply under their key was kept',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    for (const count of [1, 40]) {
      const id = await open(a);
      const key = { 'idempotency-key': 'c' };
      const store = storeOf(a);
      const before = await store.count();
      const append = store.append.bind(store);
      store.append = (...record) => (record[3] === 'y' ? new Promise(() => undefined) : append(...record));
      a.ask('POST', `/v1/sessions/${id}/clone`, { count }, key).catch(() => undefined);
      while ((await store.count()) === before) await delay(10);
      store.append = append;
      const cloned = await b.ask('POST', `/v1/sessions/${id}/clone`, { count }, key);
      t.equal(cloned.status, 201, cloned.text);
      const clones = cloned.body.sessions as unknown as { session_id: string }[];
      t.equal(clones.length, count);
      t.equal(await store.count(), before + count);
      t.match(await step(b, clones[0].session_id), { body: { step: 1 } });
      const again = await a.ask('POST', `/v1/sessions/${id}/clone`, { count }, key);
      t.same(
        (again.body.sessions as unknown as { session_id: string }[]).map(({ session_id }) => session_id),
        clones.map(({ session_id }) => session_id),
      );
      t.match(await b.ask('POST', `/v1/sessions/${id}/clone`, { count: 2 }, key), {
        body: { code: 'key_reused' },
      });
    }
  },
);

t.test(
  'a request for clones that comes twice to one server and once to another gets the clones of the first',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a);
    const clone = (app: TestApp) =>
      app.ask('POST', `/v1/sessions/${id}/clone`, { count: 2 }, { 'idempotency-key': 'c' });
    const [first, second] = [storeOf(a), storeOf(b)];
    // The first server ends before it has kept the reply.
    const append = first.append.bind(first);
    first.append = (...record) => (record[3] === 'y' ? new Promise(() => undefined) : append(...record));
    clone(a).catch(() => undefined);
    await until(async () => (await first.count()) === 3);
    // Both requests are in progress when the second server finds that.
    let checks = 0;
    const isWriter = second.isWriter.bind(second);
    second.isWriter = async (...given) => {
      const is = await isWriter(...given);
      checks++;
      return is;
    };
    const openInStore = second.open.bind(second);
    second.open = async (...sessions) => {
      const refused = await openInStore(...sessions);
      await until(() => checks === 2);
      return refused;
    };
    const both = await Promise.all([clone(b), clone(b)]);
    t.same(
      both.map(({ status }) => status),
      [201, 201],
      both.map(({ text }) => text).join('\n'),
    );
    t.same(both[0].body.sessions, both[1].body.sessions);
    t.equal(await second.count(), 3);
  },
);

t.test('a definition that a server cannot read costs no session its time', { skip: lacksValkey }, async t => {
  const [a] = await servers(t, { idleTtlSeconds: 2 });
  const touched: string[] = [];
  const store = storeOf(a);
  const touch = store.touch.bind(store);
  store.touch = sessions => {
    touched.push(...sessions.map(([id]) => id));
    return touch(sessions);
  };
  const [used, idle] = [await open(a), await open(a)];
  await store.connection.command(async client => {
    await client.hset('ragen:env', 'me/A-v0', 'a definition of a newer version');
    await client.incr('ragen:envrev');
  });
  for (const end = performance.now() + 12_000; performance.now() < end && (await store.count()) > 1; ) {
    t.equal((await step(a, used)).status, 200);
    a.wait(0.2);
    await delay(200);
  }
  t.equal(await store.count(), 1, 'the idle one expired');
  t.ok(touched.includes(used) && !touched.includes(idle));
});

t.test(
  'a store without its scripts, as after it started again, gets them again',
  { skip: lacksValkey },
  async t => {
    const [a] = await servers(t);
    const id = await open(a);
    await storeOf(a).connection.command(client => client.script('FLUSH'));
    t.match(await step(a, id), { status: 200, body: { step: 1 } });
  },
);

t.test(
  'a store that hangs is not ready, and its sessions continue when it answers',
  { skip: lacksValkey },
  async t => {
    const [a, , valkey] = await servers(t);
    const id = await open(a);
    valkey.signal('SIGSTOP');
    const [slow] = await Promise.all([step(a, id, { 'idempotency-key': 'x' })]);
    t.match(slow, { status: 503, body: { code: 'storage_failed' } });
    t.equal((await a.ask('GET', '/readyz')).status, 503);
    const begun = performance.now();
    t.equal((await step(a, id)).status, 503);
    t.ok(performance.now() - begun < 1000, 'no later request waits as long');
    valkey.signal('SIGCONT');
    while ((await a.ask('GET', '/readyz')).status !== 200) await delay(50);
    t.match(await step(a, id, { 'idempotency-key': 'x' }), { status: 200, body: { step: 1 } });
    t.match(await step(a, id), { status: 200, body: { step: 2 } });
  },
);

t.test('sessions leave memory when it is crowded, and are played on', { skip: lacksValkey }, async t => {
  const [a] = await servers(t, {
    maxBytes: 200_000,
    maxBytesPerSession: 100_000,
    maxBytesPerClient: 200_000,
  });
  const ids: string[] = [];
  for (let n = 0; n < 50; n++) ids.push(await open(a));
  for (; a.sessions.size > 0; await delay(50)) a.wait(0.05);
  for (const id of ids) t.match(await step(a, id), { body: { step: 1 } });
  t.equal(await storeOf(a).count(), 50);
});

/** Makes a session due in this many milliseconds, as if it had been idle. */
const dueIn = (app: TestApp, id: string, ms: number) =>
  storeOf(app).connection.command(async client => {
    const [seconds, micros] = (await client.time()).map(Number);
    await client.zadd('ragen:due', 1000 * seconds + micros / 1000 + ms, id);
  });

t.test('sessions outlive a store that is out of reach when they are due', { skip: lacksValkey }, async t => {
  const [a, b, valkey] = await servers(t);
  const ids = [await open(a, { ttl_s: 1 }), await open(a, { ttl_s: 1 }), await open(b, { ttl_s: 1 })];
  // A second for the file of the store.
  await delay(1100);
  for (const id of ids) await dueIn(a, id, 500);
  await valkey.restart('SIGKILL', 2500);
  await until(async () => (await step(a, ids[0])).status !== 503);
  await until(async () => (await b.ask('GET', '/readyz')).status === 200);
  for (const [n, id] of ids.entries()) {
    t.match(await step(b, id), { status: 200, body: { step: n === 0 ? 2 : 1 } });
    t.equal((await step(a, id)).status, 200);
  }
});

t.test('sessions outlive a time without servers in which they are due', { skip: lacksValkey }, async t => {
  const [a, b, valkey] = await servers(t);
  const [used, idle] = [await open(a, { ttl_s: 1 }), await open(b, { ttl_s: 1 })];
  await step(b, used);
  for (const id of [used, idle]) await dueIn(a, id, 500);
  await Promise.all([a, b].map(app => app.server.close()));
  await delay(2000);
  const c = await listening(t, { store: valkey.address });
  t.match(await step(c, used), { status: 200, body: { step: 2 } });
  t.match(await c.ask('GET', `/v1/sessions/${idle}`), { status: 200, body: { step: 0 } });
  await dueIn(c, idle, -60_000);
  const isThere = () => storeOf(c).connection.command(client => client.exists(`ragen:s:${idle}`));
  await until(async () => (await isThere()) === 0, 100);
  t.match(await step(c, idle), { status: 410, body: { code: 'session_expired' } }, 'idle time passes again');
});

t.test('the lifetime counts also where there was no server', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  await storeOf(a).connection.command(async client => {
    const settings = JSON.parse((await client.hget(`ragen:p:${id}`, 'settings'))!) as { deadline: number };
    await client.hset(
      `ragen:p:${id}`,
      'settings',
      JSON.stringify({ ...settings, deadline: a.sessions.now() - 1 }),
    );
  });
  t.match(await step(b, id), { status: 410, body: { code: 'session_expired' } });
  t.equal(await storeOf(b).count(), 0);
  t.match(await step(b, id), { status: 410, body: { code: 'session_expired' } });
});

/** The names of OpenEnv's sessions at a server, and a caller who chose one. */
function namedAt(app: TestApp) {
  const shared = sharedOf(app);
  const principal = { name: 'local', scopes: new Set(['play', 'admin'] as const) };
  const attach = async (_principal: Principal, _envId: string, sessionId: string) => {
    await shared.perform(principal, sessionId, 'reads', () => app.sessions.find(principal, sessionId));
    return { sessionId };
  };
  const names = new NamedSessions(
    {
      dispatcher: { services: { sessions: app.sessions, shared } },
      open: async () => ({ played: { sessionId: await open(app) }, stepReply: {} }),
      attach,
    } as unknown as OpenEnvPlay,
    10,
  );
  const caller = { principal, envId: 'test/Counter-v0', name: 'mine', chosen: true };
  return {
    names,
    reset: () => names.reset(caller, { input: {} } as ResetRequest),
    get: () => names.get(caller),
  };
}

t.test('OpenEnv keeps no names of sessions that ended at another server', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const { names, reset, get } = namedAt(a);
  await reset();
  const { sessionId } = await get();
  t.equal(names.size, 1);
  t.match(await step(b, sessionId), { status: 200 });
  t.equal((await b.ask('DELETE', `/v1/sessions/${sessionId}`)).status, 204);
  // This server learns of it with its next request for the session.
  t.equal((await a.ask('GET', `/v1/sessions/${sessionId}`)).status, 410);
  t.equal(names.size, 0);
  await t.rejects(get(), { code: 'session_closed' });
  await reset();
  t.not((await get()).sessionId, sessionId, 'the name begins again');
});

t.test(
  'OpenEnv drops the name of an idle session, and finds it again in the store',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const { names, reset, get } = namedAt(a);
    await reset();
    const first = (await get()).sessionId;
    // The copy of an idle session leaves memory, and the name with it; the store has both.
    for (; names.size > 0; await delay(50)) a.wait(1);
    t.equal((await get()).sessionId, first);
    t.equal(names.size, 1);
    t.equal((await b.ask('DELETE', `/v1/sessions/${first}`)).status, 204);
    for (; names.size > 0; await delay(50)) a.wait(1);
    await t.rejects(get(), { code: 'session_closed' });
    t.equal(names.size, 0);
  },
);

t.test('metrics count take-overs and errors of the store', { skip: lacksValkey }, async t => {
  const [a, b, valkey] = await servers(t);
  const id = await open(a);
  await step(b, id);
  await step(a, id);
  const metric = async (app: TestApp, name: string) =>
    Number(new RegExp(`^${name} (\\S+)$`, 'm').exec((await app.ask('GET', '/metrics')).text)?.[1]);
  t.equal(await metric(a, 'ragen_sessions_taken_total'), 1);
  t.equal(await metric(b, 'ragen_sessions_taken_total'), 1);
  t.equal(await metric(a, 'ragen_store_up'), 1);
  t.equal(await metric(a, 'ragen_store_errors_total'), 0);
  await valkey.stop();
  while ((await step(a, id)).status !== 503) await delay(20);
  t.equal(await metric(a, 'ragen_store_up'), 0);
  t.ok((await metric(a, 'ragen_store_errors_total')) > 0);
});
