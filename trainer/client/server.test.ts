import { createServer } from 'node:net';
import t, { type Test } from 'tap';
import { createApp } from '../../env-server/app.ts';
import type { Settings } from '../../env-server/config/settings.ts';
import { hashToken } from '../../env-server/transports/access/auth.ts';
import { listenLocally, serveHttp } from '../../test/local-server.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { proxy } from './proxy.test-data.ts';
import {
  BadReply,
  ClientClosed,
  ConnectTimeout,
  ReplyTimeout,
  ServerProblem,
  ServerUnavailable,
  type WaitEvent,
  type WaitEvents,
} from './retry.ts';
import { EnvServer, type EnvServerSettings } from './server.ts';
import { openServers } from './servers.ts';

const FAST = { baseMs: 1, maxDelayMs: 5 };
const TRANSPORTS = ['websocket', 'http'] as const;

async function listen(t: Test, settings: Partial<Settings> = {}): Promise<string> {
  const { server } = await createApp({ logLevel: 'silent', ...settings });
  t.teardown(() => server.close());
  return server.listen({ host: '127.0.0.1', port: 0 });
}

function client(t: Test, settings: EnvServerSettings, events: WaitEvents = {}): EnvServer {
  const server = new EnvServer({ ...settings, retry: { ...FAST, ...settings.retry } }, events);
  t.teardown(() => server.close());
  return server;
}

for (const transport of TRANSPORTS) {
  t.test(`${transport}: the same operations by REST and in batches`, async t => {
    const server = client(t, { url: await listen(t), transport });
    const input = { env_id: 'FrozenLake-v0', seed: 7 };
    const one = await server.call('create', input);
    const other = await server.batched('create', input);
    t.equal(one.observation, other.observation);
    t.not(one.session_id, other.session_id);
    const first = await server.call('step', { session_id: one.session_id, action: 'Up' });
    const second = await server.batched('step', { session_id: other.session_id, action: 'Up' });
    t.same({ ...first, session_id: '', episode_id: '' }, { ...second, session_id: '', episode_id: '' });
    for (const call of [server.call.bind(server), server.batched.bind(server)] as const) {
      const { records } = await call('trajectory', { session_id: one.session_id });
      t.equal(records.length, 2);
      t.match(await call('render', { session_id: one.session_id }), { mode: 'text' });
      t.equal(await call('close', { session_id: other.session_id }), null);
    }
    const described = await server.describe('FrozenLake-v0', { success_rate: 1 });
    t.match(described.instruction, /always move/);
  });

  t.test(`${transport}: problems carry their document`, async t => {
    const server = client(t, { url: await listen(t), transport });
    for (const call of [server.call.bind(server), server.batched.bind(server)] as const) {
      const error = (await call('create', { env_id: 'Nothing-v0' }).catch(e => e)) as ServerProblem;
      t.ok(error instanceof ServerProblem);
      t.equal(error.code, 'unknown_environment');
      t.equal(error.status, 404);
      t.match(error.message, /answered create with 404 unknown_environment: .*Nothing-v0/);
      const wrong = (await call('create', {
        env_id: 'FrozenLake-v0',
        config: { size: 'big' },
      }).catch(e => e)) as ServerProblem;
      t.match(wrong.problem.errors, [{ pointer: /size/ }]);
      t.match(wrong.message, /size/);
    }
  });

  t.test(`${transport}: a lost reply is requested again, and nothing is done twice`, async t => {
    const line = await proxy(t, await listen(t));
    const server = client(t, { url: line.url, transport });
    const { session_id } = await server.batched('create', { env_id: 'FrozenLake-v0', seed: 1 });
    for (let step = 1; step <= 3; step++) {
      const lost = line.loseReply();
      const [result] = await Promise.all([server.batched('step', { session_id, action: 'Left' }), lost]);
      t.equal(result.step, step);
      if (result.terminated) break;
    }
    const lost = line.loseReply();
    const [detail] = await Promise.all([server.call('get', { session_id }), lost]);
    const { records } = await server.call('trajectory', { session_id });
    t.equal(records.length, detail.step + 1);
  });

  t.test(`${transport}: many requests survive a cut line`, async t => {
    const line = await proxy(t, await listen(t));
    const server = client(t, { url: line.url, transport });
    const group = await server.batched('create', { env_id: 'Sokoban-v0', seed: 1, count: 64 });
    const steps = group.sessions!.map(({ session_id }) =>
      server.batch(
        ['Up', 'Down', 'Left'].map((action, i) =>
          server.request('step', { session_id, action, expected_step: i + 1 }),
        ) as never[],
      ),
    );
    setImmediate(() => setImmediate(() => line.cut()));
    for (const replies of await Promise.all(steps)) {
      t.same(
        replies.map(reply => (reply as { step: number }).step),
        [1, 2, 3],
      );
    }
    const details = await Promise.all(
      group.sessions!.map(({ session_id }) => server.batched('get', { session_id })),
    );
    t.ok(details.every(detail => detail.step === 3));
  });

  t.test(`${transport}: a server that is slow to answer is not taken for one that is away`, async t => {
    const line = await proxy(t, await listen(t));
    const server = client(t, {
      url: line.url,
      transport,
      retry: { attempts: 2 },
      http: { replyTimeoutMs: 1500 },
      socket: { replyTimeoutMs: 1500 },
    });
    // The first request of a server takes the longest.
    await client(t, { url: line.url, transport }).batched('list_environments', {});
    await server.batched('list_environments', {});
    line.silent = true;
    await t.rejects(server.batched('list_environments', {}), ReplyTimeout);
    line.silent = false;
    t.ok((await server.batched('list_environments', {})).environments.length > 0);
  });

  t.test(`${transport}: a server that is down is waited for, within bounds`, async t => {
    const url = await listen(t);
    const line = await proxy(t, url);
    const waits: WaitEvent[] = [];
    const server = client(
      t,
      { url: 'http://127.0.0.1:1', transport, retry: { patienceMs: 20 } },
      { onWaiting: event => waits.push(event) },
    );
    const error = (await server.batched('list_environments', {}).catch(e => e)) as ServerUnavailable;
    t.ok(error instanceof ServerUnavailable, String(error));
    t.match(error.message, /127\.0\.0\.1:1 was not available for/);
    t.equal(waits[0].server, 'http://127.0.0.1:1');
    t.ok(server.away);
    t.equal(line.connections, 0);
  });

  t.test(`${transport}: a full server is waited for, and takes the request when there is room`, async t => {
    const url = await listen(t, { maxSessions: 1 });
    const other = client(t, { url });
    const first = await other.call('create', { env_id: 'FrozenLake-v0' });
    let release: Promise<unknown> | undefined;
    let back = 0;
    const server = client(
      t,
      { url, transport },
      {
        onWaiting: ({ error }) => {
          t.equal((error as ServerProblem).code, 'too_many_sessions');
          release ??= other.call('close', { session_id: first.session_id });
        },
        onBack: () => back++,
      },
    );
    const second = await server.batched('create', { env_id: 'FrozenLake-v0' });
    t.ok(second.session_id);
    t.ok(release);
    t.equal(back, 1);
  });

  t.test(`${transport}: closing ends what is in progress`, async t => {
    const server = client(t, { url: 'http://127.0.0.1:1', transport });
    const waiting = server.batched('list_environments', {});
    const ended = t.rejects(waiting, ClientClosed);
    await new Promise(resolve => setTimeout(resolve, 20));
    await server.close();
    await ended;
    await t.rejects(server.batched('list_environments', {}), ClientClosed);
  });
}

t.test('one socket carries many frames and is reopened after it breaks', async t => {
  const line = await proxy(t, await listen(t));
  const server = client(t, { url: line.url });
  await Promise.all(Array.from({ length: 50 }, () => server.batched('list_environments', {})));
  t.equal(line.connections, 1);
  line.cut();
  await Promise.all(Array.from({ length: 50 }, () => server.batched('list_environments', {})));
  t.equal(line.connections, 2, 'one attempt for all who wait');
});

t.test('a half-open connection is found out', async t => {
  const line = await proxy(t, await listen(t));
  const server = client(t, { url: line.url, socket: { heartbeatMs: 20, connectTimeoutMs: 100 } });
  await server.batched('list_environments', {});
  line.silent = true;
  const waiting = server.batched('list_environments', {});
  await until(() => line.connections >= 2);
  line.silent = false;
  t.ok((await waiting).environments.length > 0);
  t.ok(line.connections >= 2);
});

t.test('a port that takes connections and says nothing', async t => {
  const { url } = await listenLocally(t, createServer());
  const server = client(t, { url, socket: { connectTimeoutMs: 10 }, retry: { patienceMs: 30 } });
  const error = (await server.batched('list_environments', {}).catch(e => e)) as ServerUnavailable;
  t.ok(error.cause instanceof ConnectTimeout, String(error.cause));
});

t.test('a token is sent, and its refusal is final', async t => {
  const tokens = JSON.stringify([{ name: 'me', sha256: hashToken('secret'), scopes: ['play'] }]);
  const url = await listen(t, { tokens });
  for (const transport of TRANSPORTS) {
    const good = client(t, { url, token: 'secret', transport });
    t.ok((await good.batched('list_environments', {})).environments.length > 0);
    const bad = client(t, { url, token: 'wrong', transport });
    await t.rejects(bad.batched('list_environments', {}), /401/);
    await t.rejects(bad.call('list_environments', {}), /401 unauthorized/);
  }
});

t.test('the token may come from the environment; one that is given goes before it', async t => {
  const tokens = JSON.stringify([{ name: 'me', sha256: hashToken('secret'), scopes: ['play'] }]);
  const url = await listen(t, { tokens });
  process.env.RAGEN_TOKEN = 'secret';
  t.teardown(() => {
    delete process.env.RAGEN_TOKEN;
  });
  for (const transport of TRANSPORTS) {
    const quiet = client(t, { url, transport });
    t.ok((await quiet.batched('create', { env_id: 'Bandit-v0' })).session_id);
    const wrong = client(t, { url, token: 'wrong', transport });
    await t.rejects(wrong.call('create', { env_id: 'Bandit-v0' }), { code: 'unauthorized' });
  }
});

t.test('a URL that is not an environment server is named', async t => {
  const { url } = await serveHttp(t, (_request, response) => response.end('<html>'));
  const server = client(t, { url });
  await t.rejects(server.call('list_environments', {}), BadReply);
  t.throws(() => new EnvServer({ url: 'localhost:8080' }), /http:\/\/host:port/);
  t.throws(() => new EnvServer({ url: 'http://a', weight: 0 }), /weight of http:\/\/a must be above 0/);
});

t.test('groups of a tag go to the servers that play it, by its weights', async t => {
  const pool = openServers([
    { url: 'http://a:1', tagWeights: { Lake: 3, Web: 0 } },
    { url: 'http://b:1', tagWeights: { Room: 0 } },
  ]);
  t.teardown(() => pool.close());
  const [a, b] = pool.servers;
  const picks = (tag: string) => Array.from({ length: 4 }, () => pool.pick({ tag }));
  t.same(picks('Room'), [a, a, a, a]);
  for (let i = 0; i < 4; i++) pool.done(a, { tag: 'Room' });
  t.same(picks('Web'), [b, b, b, b]);
  for (let i = 0; i < 4; i++) pool.done(b, { tag: 'Web' });
  t.equal(picks('Lake').filter(server => server === a).length, 3);
  t.equal(pool.pick({ tag: 'Room', except: a }), a, 'the one that failed, where there is no other');
  const nowhere = openServers([{ url: 'http://a:1', tagWeights: { Web: 0 } }]);
  t.throws(() => nowhere.pick({ tag: 'Web' }), /no server plays Web/);
  t.throws(() => openServers([{ url: 'http://a:1', tagWeights: { Web: -1 } }]), /for Web must be at least 0/);
});

t.test('work is shared by weight and what has been freed is given again', async t => {
  const pool = openServers([
    { url: 'http://a:1', weight: 1 },
    { url: 'http://b:1', weight: 3 },
  ]);
  t.teardown(() => pool.close());
  const picks = Array.from({ length: 8 }, () => pool.pick());
  t.equal(picks.filter(server => server.name === 'http://b:1').length, 6);
  const [a, b] = pool.servers;
  t.equal(pool.pick({ except: a }), b);
  for (let i = 0; i < 6; i++) pool.done(b);
  t.same([pool.pick(), pool.pick()], [b, b]);
  t.throws(() => openServers([]), /no environment server/);
  t.throws(() => openServers([{ url: 'http://a:1' }, { url: 'http://a:1/' }]), /named twice/);
});

t.test('an address with a password is refused without it', async t => {
  for (const url of ['http://ann:secret@host:8080', 'https://secret@host'])
    t.throws(() => new EnvServer({ url }), /host(:8080)? has a user name or password, .*RAGEN_TOKEN$/);
  t.throws(() => new EnvServer({ url: 'http://ann:secret@host:x' }), /got "http:\/\/\*\*\*@host:x"$/);
});
