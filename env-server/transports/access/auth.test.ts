import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { WebSocket } from 'ws';
import { isLoopback } from '../../../shared/http/addresses.ts';
import { isProblem, testApp } from '../../../test/app.test-data.ts';
import { Authenticator, hashToken, refuseOpenServer } from './auth.ts';

const TOKENS = JSON.stringify([
  { name: 'ann', sha256: hashToken('secret-a'), scopes: ['play'] },
  { name: 'bob', sha256: hashToken('secret-b'), scopes: ['play'] },
  { name: 'root', sha256: hashToken('secret-r'), scopes: ['admin'] },
  { name: 'clerk', sha256: hashToken('secret-c'), scopes: ['register'] },
]);
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

t.test('the digest is plain sha256', async t => {
  t.equal(hashToken('abc'), 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
});

t.test('with tokens, a known one is needed everywhere but on the open pages', async t => {
  const { ask } = await testApp(t, { tokens: TOKENS });
  const missing = await ask('GET', '/v1/envs');
  isProblem(t, missing, 'unauthorized');
  t.equal(missing.headers['www-authenticate'], 'Bearer');
  isProblem(t, await ask('GET', '/v1/envs', undefined, bearer('secret')), 'unauthorized');
  isProblem(t, await ask('GET', '/v1/envs', undefined, { authorization: 'Basic abc' }), 'unauthorized');
  isProblem(t, await ask('GET', '/nowhere'), 'unauthorized');
  t.equal((await ask('GET', '/v1/envs', undefined, bearer('secret-a'))).status, 200);
  for (const page of ['/livez', '/readyz', '/openapi.json', '/docs/'])
    t.equal((await ask('GET', page)).status, 200);
});

t.test('a token with letters beyond ASCII is known in Latin-1 and in UTF-8', async t => {
  const sha256 = hashToken('schlüssel');
  const tokens = new Authenticator(JSON.stringify([{ name: 'umlaut', sha256, scopes: ['play'] }]));
  for (const encoding of ['latin1', 'utf8'] as const) {
    const header = Buffer.from('Bearer schlüssel', encoding).toString('latin1');
    t.equal(tokens.principal(header).name, 'umlaut', encoding);
  }
  t.throws(() => tokens.principal('Bearer schlussel'), { code: 'unauthorized' });
});

t.test('scopes are kept', async t => {
  const { ask } = await testApp(t, { tokens: TOKENS });
  isProblem(t, await ask('GET', '/v1/envs', undefined, bearer('secret-c')), 'forbidden');
  isProblem(t, await ask('GET', '/metrics', undefined, bearer('secret-a')), 'forbidden');
  t.equal((await ask('GET', '/metrics', undefined, bearer('secret-r'))).status, 200);
});

t.test('sessions belong to their token', async t => {
  const { ask } = await testApp(t, { tokens: TOKENS, maxSessionsPerClient: 1 });
  const create = (token: string) => ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }, bearer(token));
  const { session_id } = (await create('secret-a')).body;
  const route = `/v1/sessions/${session_id}`;
  isProblem(t, await ask('GET', route, undefined, bearer('secret-b')), 'unknown_session');
  isProblem(t, await ask('DELETE', route, undefined, bearer('secret-b')), 'unknown_session');
  t.equal((await ask('GET', route, undefined, bearer('secret-a'))).status, 200);
  t.equal((await ask('GET', route, undefined, bearer('secret-r'))).status, 200, 'administrators see all');
  t.same((await ask('GET', '/v1/sessions', undefined, bearer('secret-b'))).body.sessions, []);
  t.equal((await ask('GET', '/v1/sessions', undefined, bearer('secret-r'))).body.sessions.length, 1);
  t.match((await create('secret-a')).body.detail, /limit of 1 session of one client/);
  t.equal((await create('secret-b')).status, 201, 'limits are per token');
  await ask('DELETE', route, undefined, bearer('secret-a'));
  isProblem(t, await ask('GET', route, undefined, bearer('secret-b')), 'unknown_session');
});

t.test('one token leaves a quarter of all sessions to the others', async t => {
  const { ask } = await testApp(t, { tokens: TOKENS, maxSessions: 4 });
  const create = (token: string, count: number) =>
    ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count }, bearer(token));
  t.match((await create('secret-a', 4)).body.detail, /limit of 3 sessions of one client/);
  t.equal((await create('secret-a', 3)).status, 201);
  t.equal((await create('secret-b', 1)).status, 201);
});

t.test('the WebSocket asks for a token, too', async t => {
  const app = await testApp(t, { tokens: TOKENS });
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.server.address() as { port: number };
  const dial = (headers: { [name: string]: string }) =>
    new Promise<string>(resolve => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/ws`, { headers });
      t.teardown(() => socket.terminate());
      socket.on('open', () => resolve('open'));
      socket.on('error', error => resolve(error.message));
    });
  t.match(await dial({}), /401/);
  t.equal(await dial(bearer('secret-a')), 'open');
});

t.test('ten thousand tokens are distinguished, more of them than are remembered by their header', async t => {
  const list = Array.from({ length: 10_000 }, (_, i) => ({
    name: `t${i}`,
    sha256: hashToken(`secret-${i}`),
    scopes: ['play'],
  }));
  const authenticator = new Authenticator(JSON.stringify(list));
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < list.length; i += 4) {
      const { name } = authenticator.principal(`Bearer secret-${i}`);
      if (name !== `t${i}`) t.equal(name, `t${i}`);
    }
  }
  t.throws(() => authenticator.principal('Bearer secret-10000'), { code: 'unauthorized' });
});

t.test('tokens come from a file, too; a wrong list is refused with its reason', async t => {
  const file = join(t.testdir(), 'tokens.json');
  writeFileSync(file, TOKENS);
  t.equal(new Authenticator(file).principal('bearer secret-b').name, 'bob');
  t.throws(() => new Authenticator(`${file}.not`), /no list of tokens in JSON could be read: ENOENT/);
  t.throws(() => new Authenticator('[{"name":"a","sha256":"abc","scopes":["play"]}]'), /0\/sha256/);
  t.throws(() => new Authenticator('[{"name":"a"}]'), /"sha256" is required/);
});

t.test('only loopback is served without tokens', async t => {
  const open = new Authenticator('');
  for (const host of ['127.0.0.1', '127.1.2.3', 'localhost', '::1']) {
    t.ok(isLoopback(host), host);
    refuseOpenServer(host, open);
  }
  for (const host of ['0.0.0.0', '::', '10.0.0.1', '127.evil.example']) {
    t.throws(() => refuseOpenServer(host, open), /without tokens/, host);
    refuseOpenServer(host, new Authenticator(TOKENS));
  }
});
