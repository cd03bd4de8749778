import type { IncomingMessage } from 'node:http';
import t from 'tap';
import { AllowedHosts, type HostSettings } from '../../../shared/http/security.ts';
import { isProblem } from '../../../test/app.test-data.ts';
import { hostOf, listening, sendRaw } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { Problem } from '../../problems.ts';
import { hashToken } from './auth.ts';

const hostsOf = (settings: HostSettings) =>
  new AllowedHosts(settings, (code, detail) => new Problem(code, detail));
const LOOPBACK = { host: '127.0.0.1', allowedHosts: '' };

/** A request as far as its host goes. */
function requestFor(
  host: string | undefined,
  { localAddress = '127.0.0.1', url = '/' } = {},
): IncomingMessage {
  return {
    url,
    headers: { host },
    rawHeaders: host === undefined ? [] : ['Host', host],
    httpVersionMajor: 1,
    httpVersionMinor: 1,
    socket: { localAddress },
  } as unknown as IncomingMessage;
}

t.test('a server on loopback answers to the names of this machine', t => {
  const hosts = hostsOf(LOOPBACK);
  for (const host of [
    '127.0.0.1',
    '127.0.0.1:8080',
    '127.8.8.8:1',
    'localhost',
    'LocalHost:8080',
    'localhost.:8080',
    'lake.localhost',
    '[::1]',
    '[::1]:8080',
    '[0:0:0:0:0:0:0:1]',
    '[::ffff:127.0.0.1]:80',
    '[::ffff:7f00:1]',
  ]) {
    t.ok(hosts.accepts(requestFor(host)), host);
    t.doesNotThrow(() => hosts.check(requestFor(host)), host);
  }
  for (const host of [
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'notlocalhost',
    '10.0.0.1',
    '[fe80::1]',
    '0.0.0.0',
    '127.1',
  ]) {
    t.notOk(hosts.accepts(requestFor(host)), host);
    t.throws(
      () => hosts.check(requestFor(host)),
      { code: 'host_not_allowed', message: /--allowed-hosts/ },
      host,
    );
  }
  t.end();
});

t.test('a malformed Host is refused at every listening address', t => {
  for (const settings of [
    LOOPBACK,
    { host: '0.0.0.0', allowedHosts: '' },
    { host: '::', allowedHosts: '*' },
  ]) {
    const hosts = hostsOf(settings);
    for (const host of [
      '',
      ' ',
      'user@localhost',
      'user:pass@localhost',
      'localhost:80:80',
      'localhost:65536',
      'localhost:x',
      'local host',
      'localhost/path',
      'localhost, evil.example',
      'http://localhost',
      'localh\u00f6st',
      'localhost\u0000',
      'localhost%00',
      '[::1',
      '[localhost]',
      '::1',
      'a..b',
      '.localhost',
      '-a',
      `${'x'.repeat(50_000)}!`,
    ]) {
      const shown = JSON.stringify(host.slice(0, 60));
      t.notOk(hosts.accepts(requestFor(host)), shown);
      t.throws(() => hosts.check(requestFor(host)), { code: 'bad_request', message: /^.{0,300}$/ }, shown);
    }
    t.throws(() => hosts.check(requestFor(undefined)), { code: 'bad_request', message: /missing/ });
  }
  t.end();
});

t.test('a server that others can reach answers to any name, and with a list to those in it', t => {
  const open = hostsOf({ host: '0.0.0.0', allowedHosts: '' });
  t.ok(open.accepts(requestFor('anything.example:8080')));
  const listed = hostsOf({
    host: '0.0.0.0',
    allowedHosts: 'Env.example, *.pods.example,[2001:db8::1]',
  });
  for (const host of [
    'env.example',
    'env.example.:80',
    'a.pods.example',
    'a.b.pods.example',
    '[2001:db8:0::1]',
  ]) {
    t.ok(listed.accepts(requestFor(host)), host);
  }
  for (const host of ['example', 'x.env.example', 'pods.example', 'xpods.example', '10.0.0.1']) {
    t.notOk(listed.accepts(requestFor(host)), host);
  }
  // A probe asks for the address that it connects to.
  t.ok(listed.accepts(requestFor('10.0.0.1:8080', { localAddress: '10.0.0.1' })));
  t.ok(listed.accepts(requestFor('10.0.0.1:8080', { localAddress: '::ffff:10.0.0.1' })));
  t.ok(listed.accepts(requestFor('localhost')));
  t.ok(hostsOf({ host: '127.0.0.1', allowedHosts: '*' }).accepts(requestFor('anything.example')));
  t.ok(hostsOf({ host: 'lab.example', allowedHosts: 'x' }).accepts(requestFor('lab.example')));
  t.end();
});

t.test('entries that are no host names are refused at the start', async t => {
  for (const allowedHosts of ['https://env.example', 'env.example:8080', 'a b', '*.', 'a.*', 'é.example']) {
    await t.rejects(
      createApp({ allowedHosts, logLevel: 'silent' }),
      /allowed-hosts: .* is not a host name/,
      allowedHosts,
    );
  }
});

const STEP = '{"action":"add"}';

t.test('every route and upgrade checks the host, plain requests too', async t => {
  const app = await listening(t);
  const id = await app.open();
  const upgrade = [
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    'Origin: http://evil.example',
  ].join('\n');
  const json = `Content-Type: application/json\nContent-Length: ${STEP.length}`;
  const requests: readonly (readonly [start: string, more: string, body: string])[] = [
    ['GET / HTTP/1.1', '', ''],
    ['GET /livez HTTP/1.1', '', ''],
    ['GET /docs/ HTTP/1.1', '', ''],
    ['GET /v1/envs HTTP/1.1', '', ''],
    ['GET /nowhere HTTP/1.1', '', ''],
    ['OPTIONS /v1/batch HTTP/1.1', '', ''],
    [`POST /v1/sessions/${id}/step HTTP/1.1`, json, STEP],
    ['POST /v1/batch HTTP/1.1', json, STEP],
    ['POST /compat/openenv/test%2FCounter-v0/reset HTTP/1.1', '', ''],
    ['GET /compat/openenv/test%2FCounter-v0/health HTTP/1.1', '', ''],
    ['GET /v1/ws HTTP/1.1', upgrade, ''],
    ['GET /compat/openenv/test%2FCounter-v0/ws HTTP/1.1', upgrade, ''],
  ];
  const ask = (start: string, lines: readonly string[], body: string) =>
    sendRaw(app, [start, ...lines].filter(Boolean).join('\n'), body);
  for (const [start, more, body] of requests) {
    const reply = await ask(start, ['Host: evil.example:8080', more], body);
    t.equal(reply.status, 421, start);
    t.match(JSON.parse(reply.body), {
      code: 'host_not_allowed',
      detail: /names evil\.example, .*--allowed-hosts evil\.example \(RAGEN_ALLOWED_HOSTS\)/,
    });
    for (const lines of [
      [`Host: ${hostOf(app)}`, 'host: evil.example'],
      ['Host: evil.example', `Host: ${hostOf(app)}`],
      [`Host: ${hostOf(app)}`, `Host: ${hostOf(app)}`],
      [`Host: me@${hostOf(app)}`],
      ['Host: a b'],
      ['Host:'],
      [],
    ]) {
      const refused = await ask(start, [...lines, more], body);
      t.equal(refused.status, 400, `${start} ${lines.join(', ')}`);
      t.equal(JSON.parse(refused.body).code, 'bad_request');
    }
  }
  t.equal((await app.ask('GET', `/v1/sessions/${id}`)).body.step, 0, 'nothing was carried out');
  const gym = await ask('POST /compat/gym/v1/envs HTTP/1.1', ['Host: evil.example'], '');
  t.match(JSON.parse(gym.body), { message: /evil\.example/, code: 'host_not_allowed' });
});

t.test('a target with a host must name the same host as Host', async t => {
  const app = await listening(t);
  const id = await app.open();
  const host = hostOf(app);
  const step = (target: string) =>
    sendRaw(
      app,
      `POST ${target}/v1/sessions/${id}/step HTTP/1.1\nHost: ${host}\nContent-Type: application/json\nContent-Length: ${STEP.length}`,
      STEP,
    );
  t.equal((await step(`http://${host}`)).status, 200);
  for (const target of [
    'http://evil.example',
    `http://me@${host}`,
    'http://',
    `http://${host}.evil.example`,
  ]) {
    const reply = await step(target);
    t.equal(reply.status, 400, target);
    t.equal(JSON.parse(reply.body).code, 'bad_request');
  }
  t.equal((await app.ask('GET', `/v1/sessions/${id}`)).body.step, 1);
  const old = await sendRaw(app, 'GET /livez HTTP/1.0');
  t.equal(old.status, 200, 'HTTP/1.0 has no Host');
});

t.test('with tokens the host comes first, and a listed one still needs its token', async t => {
  const tokens = JSON.stringify([{ name: 'a', sha256: hashToken('secret'), scopes: ['play'] }]);
  const app = await listening(t, { tokens, allowedHosts: 'env.example' });
  const ask = (host: string) => app.ask('GET', '/v1/envs', undefined, { host });
  isProblem(t, await ask('other.example'), 'host_not_allowed');
  isProblem(t, await ask('env.example'), 'unauthorized');
  const reply = await app.ask('GET', '/v1/envs', undefined, {
    host: 'env.example',
    authorization: 'Bearer secret',
  });
  t.equal(reply.status, 200);
});
