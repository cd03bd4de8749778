import { once } from 'node:events';
import t from 'tap';
import { WebSocket } from 'ws';
import { isProblem, testApp } from '../../../test/app.test-data.ts';
import { hostOf, listening, sendRaw } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { OPERATIONS } from '../../operations/table.ts';
import { hashToken } from './auth.ts';

const PAGE = 'https://app.example.org';
const OTHER = 'https://evil.example';
const TOKENS = JSON.stringify([{ name: 'a', sha256: hashToken('secret'), scopes: ['play'] }]);
const SOCKETS = ['/v1/ws', '/compat/openenv/test%2FCounter-v0/ws'];

t.test('without the setting no page of others is answered as one', async t => {
  const app = await listening(t);
  const preflight = await app.ask('OPTIONS', '/v1/sessions', undefined, {
    origin: PAGE,
    'access-control-request-method': 'POST',
  });
  isProblem(t, preflight, 'method_not_allowed');
  const read = await app.ask('GET', '/v1/envs', undefined, { origin: PAGE });
  t.equal(read.status, 200);
  t.notOk(Object.keys(read.headers).some(name => name.startsWith('access-control-')));
});

t.test('a page of another origin changes nothing, also by what needs no preflight', async t => {
  const app = await listening(t);
  const id = await app.open();
  for (const path of [
    `/v1/sessions/${id}/snapshot`,
    `/v1/sessions/${id}/reset`,
    '/compat/openenv/test%2FCounter-v0/reset',
  ]) {
    for (const origin of [OTHER, 'null']) {
      const reply = await app.ask('POST', path, undefined, { origin });
      isProblem(t, reply, 'forbidden');
      t.match(reply.body.detail, /may not use this server; start it with --cors-origins/);
    }
    t.not((await app.ask('POST', path, undefined, { origin: `http://${hostOf(app)}` })).status, 403, path);
  }
  const step = await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add' }, { origin: OTHER });
  isProblem(t, step, 'forbidden');
  t.equal((await app.ask('GET', `/v1/sessions/${id}`)).body.step, 0);
});

t.test('a listed page may ask, use every method and read every header, and needs its token', async t => {
  const app = await testApp(t, { corsOrigins: `${PAGE},http://localhost:3000`, tokens: TOKENS });
  for (const { method, path } of OPERATIONS) {
    const preflight = await app.server.inject({
      method: 'OPTIONS',
      url: path.replaceAll(/\{\w+\}/g, 'x'),
      headers: {
        origin: PAGE,
        'access-control-request-method': method,
        'access-control-request-headers': 'authorization,content-type,idempotency-key,traceparent',
      },
    });
    t.equal(preflight.statusCode, 204, path);
    t.equal(preflight.headers['access-control-allow-origin'], PAGE);
    t.equal(preflight.headers['access-control-max-age'], '600');
    t.ok(String(preflight.headers['access-control-allow-methods']).split(', ').includes(method), method);
    const allowed = String(preflight.headers['access-control-allow-headers']).toLowerCase().split(', ');
    for (const name of ['authorization', 'content-type', 'idempotency-key', 'traceparent']) {
      t.ok(allowed.includes(name), name);
    }
    t.match(String(preflight.headers.vary), /origin/i);
    t.notOk(preflight.headers['access-control-allow-credentials']);
  }
  const bare = await app.ask('GET', '/v1/envs', undefined, { origin: PAGE });
  isProblem(t, bare, 'unauthorized');
  t.equal(bare.headers['access-control-allow-origin'], PAGE, 'the page may read why');
  const bearer = { origin: PAGE, authorization: 'Bearer secret' };
  const created = await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }, bearer);
  t.equal(created.status, 201);
  t.equal(created.headers['access-control-allow-origin'], PAGE);
  t.match(created.headers['access-control-expose-headers'], /Retry-After/);
  const path = `/v1/sessions/${created.body.session_id}/step`;
  const step = await app.ask('POST', path, { action: 'add' }, bearer);
  t.equal(step.status, 200);
  t.equal(step.headers['access-control-allow-origin'], PAGE, 'also what else is served without Fastify');
  const missing = await app.ask('GET', '/nowhere', undefined, bearer);
  isProblem(t, missing, 'not_found');
  t.equal(missing.headers['access-control-allow-origin'], PAGE);
  const foreign = await app.ask('GET', '/v1/envs', undefined, { ...bearer, origin: OTHER });
  t.notOk('access-control-allow-origin' in foreign.headers);
  isProblem(t, await app.ask('POST', path, { action: 'add' }, { ...bearer, origin: OTHER }), 'forbidden');
  const outside = await app.ask('OPTIONS', '/v1/batch');
  isProblem(t, outside, 'unauthorized');
});

t.test('raw preflight: no body, and the connection continues', async t => {
  const app = await listening(t, { corsOrigins: PAGE });
  const reply = await sendRaw(
    app,
    `OPTIONS /v1/batch HTTP/1.1\nHost: ${hostOf(app)}\nOrigin: ${PAGE}\nAccess-Control-Request-Method: POST`,
  );
  t.equal(reply.status, 204);
  t.match(reply.head.toLowerCase(), /\r\naccess-control-allow-origin: https:\/\/app\.example\.org\r\n/);
  t.equal(reply.body, '');
  const rebound = await sendRaw(
    app,
    `OPTIONS /v1/batch HTTP/1.1\nHost: evil.example\nOrigin: ${PAGE}\nAccess-Control-Request-Method: POST`,
  );
  t.equal(rebound.status, 421, 'the host comes first');
  const plain = await app.ask('OPTIONS', '/v1/batch');
  isProblem(t, plain, 'method_not_allowed');
  t.equal(plain.headers.allow, 'POST');
  isProblem(t, await app.ask('OPTIONS', '/nowhere'), 'not_found');
});

/** True if a page of an origin gets a WebSocket. */
async function opens(app: Parameters<typeof hostOf>[0], path: string, origin: string): Promise<boolean> {
  const socket = new WebSocket(`ws://${hostOf(app)}${path}`, { origin });
  const opened = await Promise.race([
    once(socket, 'open').then(() => true),
    once(socket, 'unexpected-response').then(() => false),
    once(socket, 'error').then(() => false),
  ]);
  socket.on('error', () => undefined);
  socket.terminate();
  return opened;
}

t.test('sockets open for own and for listed pages', async t => {
  for (const corsOrigins of ['', PAGE, '*']) {
    const app = await listening(t, { corsOrigins });
    for (const path of SOCKETS) {
      t.equal(await opens(app, path, `http://${hostOf(app)}`), true, `${corsOrigins} own`);
      t.equal(await opens(app, path, PAGE), corsOrigins !== '', `${corsOrigins} listed`);
      t.equal(await opens(app, path, OTHER), corsOrigins === '*', `${corsOrigins} other`);
      t.equal(await opens(app, path, 'null'), corsOrigins === '*', `${corsOrigins} null`);
      t.equal(await opens(app, path, `${PAGE}.evil.example`), corsOrigins === '*', `${corsOrigins} longer`);
    }
  }
});

t.test('`*` admits all origins', async t => {
  const { ask } = await testApp(t, { corsOrigins: '*' });
  const reply = await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }, { origin: OTHER });
  t.equal(reply.status, 201);
  t.equal(reply.headers['access-control-allow-origin'], '*');
});

t.test('entries that are no origins are refused at the start', async t => {
  for (const corsOrigins of [
    'app.example.org',
    'https://app.example.org/',
    'https://a.example/x',
    'ftp://a',
    'null',
  ]) {
    await t.rejects(
      createApp({ corsOrigins, logLevel: 'silent' }),
      /cors-origins: .* is not an origin/,
      corsOrigins,
    );
  }
});
