import { createServer } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { mock } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { listenLocally } from '../../../test/local-server.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { Problem } from '../../problems.ts';
import { Endpoint, type EndpointAccess } from './endpoint.ts';
import { NetworkGuard, RemoteNetwork } from './network.ts';
import { listen, localNetwork, testService } from './service.test-data.ts';

async function problemOf(work: Promise<unknown>): Promise<Problem> {
  try {
    await work;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  throw new Error('there was no problem');
}

t.test('requests send JSON below the address, with the given headers', async t => {
  const service = await testService(t, () => ({ body: { answer: 42 } }));
  const endpoint = new Endpoint(
    'test/E-v0',
    { url: `${service.url}/below/here`, headers: { Authorization: 'Bearer x' } },
    localNetwork(t),
  );
  t.same(await endpoint.askObject('POST', 'reset', { a: 1 }), { answer: 42 });
  t.match(service.received, [
    { method: 'POST', path: '/below/here/reset', body: { a: 1 }, headers: { authorization: 'Bearer x' } },
  ]);
});

t.test('requests are retried only if nothing was sent', async t => {
  const port = await freePort();
  const endpoint = new Endpoint('test/E-v0', { url: `http://127.0.0.1:${port}` }, localNetwork(t));
  const problem = await problemOf(endpoint.ask('POST', 'step', {}));
  t.equal(problem.code, 'remote_unavailable');
  t.match(problem.message, /ECONNREFUSED/);

  let asked = 0;
  const server = createServer((_request, response) => {
    asked++;
    response.setHeader('content-type', 'application/json').end('{"late":true}');
  });
  t.teardown(() => server.close());
  const waiting = endpoint.askObject('POST', 'step', {});
  await listen(server, port);
  t.same(await waiting, { late: true }, 'the service came up between two attempts');
  t.equal(asked, 1);

  const dropping = await testService(t, () => ({}));
  const dropped = new Endpoint('test/E-v0', { url: dropping.url }, localNetwork(t));
  t.equal((await problemOf(dropped.ask('POST', 'step', {}))).code, 'remote_failed');
  t.equal(dropping.received.length, 1, 'a broken connection is not tried again');
  await problemOf(dropped.ask('POST', 'step', {}, { repeatable: true }));
  t.equal(dropping.received.length, 4, 'unless the request may be repeated');
});

t.test('each kind of bad reply gets its own error', async t => {
  const service = await testService(t, ({ path }) => {
    switch (path) {
      case '/redirect':
        return { status: 302, headers: { location: 'http://127.0.0.1:1/' }, body: '' };
      case '/broken':
        return { body: '<html>' };
      case '/failing':
        return { status: 503, body: { detail: 'no beds' } };
      case '/refusing':
        return { status: 404, body: { error: 'who?' } };
      case '/faults':
        return { status: 422, body: { detail: [{ msg: 'wrong', loc: ['body', { toString: 1 }] }] } };
      case '/list':
        return { body: [] };
      default:
        return { body: 'x'.repeat(2 * 1024 * 1024) };
    }
  });
  const endpoint = new Endpoint('test/E-v0', { url: service.url }, localNetwork(t));
  const cases: [route: string, message: RegExp][] = [
    ['redirect', /answered POST \/redirect with a redirect, which is not followed/],
    ['broken', /something that is not JSON/],
    ['failing', /with 503: no beds/],
    ['refusing', /with 404: who\?/],
    ['faults', /with 422: body\.{"toString":1}: wrong/],
    ['list', /must answer POST list with a JSON object/],
    ['large', /the service of test\/E-v0 cannot be understood.*size/i],
  ];
  for (const [route, message] of cases) {
    const problem = await problemOf(endpoint.askObject('POST', route, {}));
    t.equal(problem.code, 'remote_failed', route);
    t.match(problem.message, message);
  }
  t.equal(service.received.length, cases.length, 'each was asked once, and nobody followed the redirect');
});

t.test('a service that is not reached by TLS is named with the reason', async t => {
  const { port } = await testService(t, () => ({ body: {} }));
  const plain = new Endpoint('test/E-v0', { url: `https://127.0.0.1:${port}` }, localNetwork(t));
  t.match((await problemOf(plain.ask('GET', 'x'))).message, /does not answer in TLS .*begins with http:/);
  const { network, owner } = localNetwork(t);
  network.send = async () => {
    throw Object.assign(new Error('certificate has expired'), { code: 'CERT_HAS_EXPIRED' });
  };
  const expired = new Endpoint('test/E-v0', { url: 'https://127.0.0.1' }, { network, owner });
  t.match((await problemOf(expired.ask('GET', 'x'))).message, /not trusted: certificate has expired/);
});

t.test('a service that does not answer in time has failed', async t => {
  const service = await testService(t, () => new Promise(() => undefined));
  const endpoint = new Endpoint('test/E-v0', { url: service.url, timeout_ms: 1000 }, localNetwork(t));
  const problem = await problemOf(endpoint.ask('GET', 'x'));
  t.equal(problem.code, 'remote_failed');
  t.match(problem.message, /did not answer within 1000 ms/);
  t.equal(service.received.length, 1);
});

t.test('after consecutive failures the service gets no requests for a while', async t => {
  let now = 0;
  let healthy = false;
  const service = await testService(t, () => ({ status: healthy ? 200 : 500, body: {} }));
  const endpoint = new Endpoint('test/E-v0', { url: service.url }, localNetwork(t), () => now);
  for (let i = 0; i < 5; i++) t.equal((await problemOf(endpoint.ask('GET', 'x'))).code, 'remote_failed');
  const problem = await problemOf(endpoint.ask('GET', 'x'));
  t.equal(problem.code, 'remote_unavailable');
  t.equal(problem.retryAfterSeconds, 1);
  t.equal(service.received.length, 5);
  healthy = true;
  now = 1000;
  t.equal((await endpoint.ask('GET', 'x')).status, 200);
  t.equal((await endpoint.ask('GET', 'x')).status, 200);
});

t.test('the guard checks every connection, also of a name that changes its address', async t => {
  const service = await testService(t, () => ({ body: {} }));
  let address = '127.0.0.1';
  const network = new RemoteNetwork(
    new NetworkGuard({ remoteHosts: '*', remoteNetworks: '127.0.0.1' }, async () => [{ address, family: 4 }]),
  );
  t.teardown(() => network.close());
  const endpoint = new Endpoint(
    'test/E-v0',
    { url: `http://service.test:${service.port}` },
    { network, owner: 'me' },
  );
  t.equal((await endpoint.ask('GET', 'x')).status, 200);
  address = '127.0.0.2';
  t.equal((await endpoint.ask('GET', 'x')).status, 200, 'the first address stays');
  network.guard.unpin(new URL('http://service.test/'));
  await network.close();

  const fresh = new RemoteNetwork(network.guard);
  t.teardown(() => fresh.close());
  const moved = new Endpoint(
    'test/E-v0',
    { url: `http://service.test:${service.port}` },
    { network: fresh, owner: 'me' },
  );
  const problem = await problemOf(moved.ask('GET', 'x'));
  t.match(problem.message, /service.test does not resolve to an address that this server may reach/);
  t.equal(problem.code, 'remote_unavailable');
  t.equal(service.received.length, 2);
});

t.test('a name with a private address and a name without one are refused alike', async t => {
  const guard = new NetworkGuard({ remoteHosts: '*', remoteNetworks: '' }, async host => {
    if (host === 'inner.test') return [{ address: '10.0.0.7', family: 4 }];
    throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: 'ENOTFOUND' });
  });
  const network = new RemoteNetwork(guard);
  t.teardown(() => network.close());
  const refusals = await Promise.all(
    ['inner.test', 'absent.test'].map(async host => {
      const endpoint = new Endpoint('test/E-v0', { url: `http://${host}` }, { network, owner: 'me' });
      const problems = [await problemOf(endpoint.checkAddress()), await problemOf(endpoint.ask('GET', 'x'))];
      return problems.map(({ code, message }) => `${code} ${message.replaceAll(host, 'HOST')}`);
    }),
  );
  t.same(refusals[0], refusals[1]);
  t.match(refusals[0], [/^invalid_request/, /^remote_unavailable/]);
});

t.test('a reply that is too deep or too large fails with its location', async t => {
  const replies: { [path: string]: string } = {
    '/deep': `{"info":${'{"a":'.repeat(6500)}1${'}'.repeat(6500)}}`,
    '/large': JSON.stringify({ observation: 'x'.repeat(300_000) }),
    '/flood': JSON.stringify({ observation: 'x'.repeat(3_000_000) }),
    '/infinite': '{"reward":1e999}',
    '/prototype': '{"info":{"__proto__":{}}}',
  };
  const service = await testService(t, ({ path }) => ({ body: replies[path] }));
  const ask = (path: string) =>
    problemOf(new Endpoint('test/E-v0', { url: service.url }, localNetwork(t)).ask('POST', path, {}));
  t.match((await ask('deep')).message, /\/info\/a.* nested more than 64 levels deep/);
  t.match((await ask('large')).message, /\/observation has more than 262144 bytes/);
  t.equal((await ask('flood')).code, 'remote_failed');
  t.match((await ask('infinite')).message, /\/reward is Infinity/);
  t.match(await ask('prototype'), { code: 'remote_failed', message: /\/info\/__proto__/ });
});

t.test('unusable addresses and headers are rejected with their location', async t => {
  const network = localNetwork(t);
  const make = (access: object) => () =>
    new Endpoint('test/E-v0', { url: 'http://a.test', ...access }, network);
  const violations = (work: () => unknown): string | undefined => {
    try {
      work();
      return undefined;
    } catch (error) {
      return (error as Problem).violations?.[0]?.pointer;
    }
  };
  t.equal(violations(make({ url: 'nonsense' })), '/definition/url');
  t.equal(violations(make({ url: 'ftp://a.test' })), '/definition/url');
  t.equal(violations(make({ url: 'http://a.test/?q=1' })), '/definition/url');
  t.equal(violations(make({ headers: { Host: 'b.test' } })), '/definition/headers');
  t.equal(violations(make({ headers: { 'x y': '1' } })), '/definition/headers');
  t.equal(violations(make({ headers: { x: 'a\r\nb: c' } })), '/definition/headers');
  t.equal(violations(make({ headers: { 'x-api-key': 'secret' } })), undefined);

  const guarded = new Endpoint('test/E-v0', { url: 'http://127.0.0.9:80' }, network);
  t.equal((await problemOf(guarded.checkAddress())).violations?.[0].pointer, '/definition/url');
  t.match((await problemOf(guarded.ask('GET', 'x'))).message, /may not be reached/);
});

t.test('connecting takes no longer than the timeout of the request', async t => {
  const { port } = await listenLocally(t, createTcpServer());
  const { network } = localNetwork(t);
  const url = new URL(`https://127.0.0.1:${port}`);
  for (const [headersTimeout, message] of [
    [100, /timeout: 250ms/],
    [251, /timeout: 500ms/],
  ] as const) {
    await t.rejects(network.send(url, { headersTimeout }), { message });
  }
});

t.test('the timeout of a request starts when it gets its connection', async t => {
  const service = await testService(t, async () => {
    await delay(150);
    return { body: {} };
  });
  const access = { url: service.url, timeout_ms: 600, connections: 2 };
  const endpoint = new Endpoint('test/E-v0', access, localNetwork(t));
  const asked = Array.from({ length: 20 }, () => endpoint.ask('POST', 'step', {}));
  const replies = await Promise.allSettled(asked);
  t.same(
    replies.filter(({ status }) => status === 'rejected'),
    [],
    '1.5 s of work for two connections',
  );
});

t.test('a service that serves one connection at a time is played with connections: 1', async t => {
  // The next connection is served when the last has closed, as in a loop of accept and read.
  const closed: (() => void)[] = [];
  let busy = false;
  let connections = 0;
  const service = await testService(t, () => ({ body: {} }));
  const serial = createTcpServer({ pauseOnConnect: true }, socket => {
    connections++;
    const begin = () => {
      busy = true;
      const behind = connect(service.port, '127.0.0.1');
      socket.pipe(behind).pipe(socket);
      for (const end of [socket, behind]) end.on('error', () => end.destroy());
      socket.on('close', () => {
        behind.destroy();
        busy = false;
        closed.shift()?.();
      });
    };
    if (busy) closed.push(begin);
    else begin();
  });
  const { url } = await listenLocally(t, serial);
  const network = localNetwork(t);
  const all = (access: EndpointAccess) => {
    const endpoint = new Endpoint('test/E-v0', access, network);
    return Promise.allSettled(Array.from({ length: 40 }, () => endpoint.ask('POST', 'step', {})));
  };
  const replies = await all({ url, connections: 1 });
  t.same(
    replies.filter(({ status }) => status === 'rejected'),
    [],
  );
  t.equal(connections, 1);
  const refused = (await all({ url, timeout_ms: 300 })).find(({ status }) => status === 'rejected');
  t.match((refused as PromiseRejectedResult).reason, {
    code: 'remote_failed',
    message:
      /within 300 ms, with \d+ other requests open; for a service that serves one connection at a time set "connections": 1/,
  });
});

t.test('a service that hangs leaves connections to the services of other owners', async t => {
  const silent = await testService(t, () => new Promise(() => undefined));
  const quick = await testService(t, () => ({ body: {} }));
  const guard = new NetworkGuard({ remoteHosts: '*', remoteNetworks: '127.0.0.1' });
  const network = new RemoteNetwork(guard, undefined, undefined, 8);
  t.teardown(() => network.close());
  const mine = new Endpoint('me/E-v0', { url: quick.url }, { network, owner: 'me' });
  const hanging = Array.from({ length: 50 }, (_, i) =>
    new Endpoint(`them/E-v${i}`, { url: silent.url, timeout_ms: 60_000 }, { network, owner: 'them' }).ask(
      'POST',
      'step',
      {},
    ),
  );
  void Promise.allSettled(hanging);
  await until(() => silent.received.length === 6);
  t.same((await mine.ask('POST', 'step', {})).body, {});
  t.equal(silent.received.length, 6, 'the others wait');
});

t.test('a request that gets no connection in time is refused, and was not sent', async t => {
  const service = await testService(t, () => new Promise(() => undefined));
  const access = { url: service.url, timeout_ms: 60_000, connections: 1 };
  const endpoint = new Endpoint('test/E-v0', access, localNetwork(t));
  void endpoint.ask('POST', 'step', {}).catch(() => undefined);
  await until(() => service.received.length === 1);
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const problem = problemOf(endpoint.ask('POST', 'step', {}));
  mock.timers.tick(30_000);
  t.match(await problem, {
    code: 'remote_unavailable',
    message:
      'the service of test/E-v0 had no connection free within 30 s; its definition allows 1 (connections)',
    retryAfterSeconds: 1,
  });
  t.equal(service.received.length, 1);
});
