import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import { OPERATIONS } from '../../operations/table.ts';
import { hashToken } from './auth.ts';

/** Hostile requests of strangers, and what the replies reveal. */

t.test('replies forbid sniffing and caching; pages load nothing from other origins', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  for (const [method, path] of [
    ['GET', `/v1/sessions/${id}`],
    ['GET', '/v1/sessions/unknown'],
    ['GET', '/nowhere'],
    ['GET', '/metrics'],
    ['DELETE', `/v1/sessions/${id}`],
    ['GET', '/v1/envs/%ff'],
  ] as const) {
    const { headers } = await ask(method, path);
    t.equal(headers['x-content-type-options'], 'nosniff', path);
    t.equal(headers['cache-control'], 'no-store', path);
    t.equal(headers['x-powered-by'], undefined);
  }
  for (const page of ['/docs/', '/assets/site/reference/main.ts', '/']) {
    const { headers, status } = await ask('GET', page);
    t.equal(status, 200, page);
    const policy = String(headers['content-security-policy']);
    for (const directive of [
      "default-src 'self'",
      "object-src 'none'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ]) {
      t.ok(policy.includes(directive), `${page}: ${directive}`);
    }
    t.notMatch(policy, /script-src|unsafe-eval/, 'scripts come from this server only');
    t.equal(headers['x-frame-options'], 'DENY');
    t.equal(headers['referrer-policy'], 'no-referrer');
    t.equal(headers['x-content-type-options'], 'nosniff');
  }
});

t.test('so do replies to malformed requests', async t => {
  const app = await listening(t);
  const socket = connect(Number(hostOf(app).split(':')[1]), '127.0.0.1');
  socket.end('HELLO\r\n\r\n');
  const reply = await text(socket);
  t.match(reply, /^HTTP\/1.1 400 Bad Request\r\n/);
  for (const line of [
    'x-content-type-options: nosniff',
    'cache-control: no-store',
    'content-type: application/problem+json; charset=utf-8',
    'connection: close',
  ]) {
    t.ok(reply.includes(`\r\n${line}\r\n`), line);
  }
  const body = reply.slice(reply.indexOf('\r\n\r\n') + 4);
  t.ok(reply.includes(`\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`));
  t.match(JSON.parse(body), { code: 'bad_request', status: 400 });
});

/** Levels that would overflow a recursive reader's stack; two such values stay below the limit on a request's parts. */
const DEEP = 40_000;
/** Lists in one another, as text: no writer would make them. */
const nested = (levels: number) => `${'['.repeat(levels)}1${']'.repeat(levels)}`;

t.test('every transport refuses a body that is nested too deep', async t => {
  const { ask, open, server } = await testApp(t);
  const id = await open();
  const cases: [string, string, (value: string) => string][] = [
    ['POST', '/v1/sessions', value => `{"env_id":"test/Counter-v0","config":${value}}`],
    ['POST', '/v1/sessions', value => `{"env_id":"test/Counter-v0","options":{"start":${value}}}`],
    [
      'POST',
      '/v1/sessions',
      value => `{"env_id":"test/Counter-v0","wrappers":[{"name":"history","options":{"k":${value}}}]}`,
    ],
    ['POST', `/v1/sessions/${id}/step`, value => `{"action":${value}}`],
    ['POST', '/v1/envs/test%2FCounter-v0/describe', value => `{"config":{"goal":${value}}}`],
    ['POST', '/v1/envs', value => `{"env_id":"me/A-v0","definition":{"kind":"tabular","states":${value}}}`],
    ['PUT', '/v1/envs/me%2FA-v0', value => `{"definition":${value}}`],
  ];
  for (const [method, path, body] of cases) {
    for (const levels of [65, DEEP]) {
      const reply = await ask(method, path, body(nested(levels)));
      isProblem(t, reply, 'invalid_request');
      t.match(reply.body.detail, /nested more than 64 levels deep/, `${path}, ${levels} levels`);
    }
  }
  const batch = await ask(
    'POST',
    '/v1/batch',
    `{"items":[{"op":"step","session_id":"${id}","action":${nested(DEEP)}},${nested(DEEP)},{"op":"get","session_id":"${id}"}]}`,
  );
  t.match(batch.body.results, [
    { error: { code: 'invalid_request', detail: /nested more than 64 levels deep/ } },
    { error: { code: 'invalid_request' } },
    { ok: true },
  ]);
  isProblem(t, await ask('POST', '/v1/batch', nested(DEEP)), 'invalid_request');
  isProblem(t, await ask('POST', '/v1/batch', `{"items":[{"__proto__":${nested(DEEP)}}]}`), 'bad_json');
  const { send, next } = await dial(t, { server }, '/v1/ws');
  send(`{"id":1,"op":"step","session_id":"${id}","action":${nested(DEEP)}}`);
  t.match(await next(), { id: 1, error: { code: 'invalid_request', detail: /64 levels/ } });
  send(nested(100_000));
  t.match(await next(), { id: null, error: { code: 'invalid_request' } });
  t.equal((await ask('POST', `/v1/sessions/${id}/step`, { action: 'add' })).status, 200);
});

t.test('bodies beyond the limit are refused with 413 at every route that takes one', async t => {
  const { ask } = await testApp(t, { bodyLimitBytes: 2000 });
  for (const { method, path } of [...OPERATIONS, { method: 'POST', path: '/v1/batch' }]) {
    if (method !== 'POST' && method !== 'PUT') continue;
    const url = path.replaceAll(/\{\w+\}/g, 'x');
    isProblem(t, await ask(method, url, { text: 'x'.repeat(3000) }), 'body_too_large');
  }
});

const SECRET = /secret|\/home\/|\\n|\bat .*:\d+/;

t.test(
  'the error of an environment that throws anywhere has no stack, and leaves no session behind',
  async t => {
    const app = await listening(t);
    const { ask, open, sessions } = app;
    const { send, next } = await dial(t, app, '/v1/ws');
    const broken = (at: string) => open({ env_id: 'test/Broken-v0', config: { at } });
    const hidesStack = (reply: { text: string; body: object }, what: RegExp) => {
      t.match(reply.body, { status: 500, code: 'environment_fault', detail: what });
      t.notMatch(reply.text, SECRET);
    };
    for (const [at, what] of [
      ['reset', /^test\/Broken-v0 failed to begin: it broke$/],
      ['observe', /^test\/Broken-v0 failed to show step 0: it broke$/],
    ] as const) {
      const request = { env_id: 'test/Broken-v0', config: { at }, count: 3 };
      hidesStack(await ask('POST', '/v1/sessions', request), what);
      send({ id: 1, op: 'create', ...request });
      const frame = await next();
      hidesStack({ text: JSON.stringify(frame), body: frame.error }, what);
      const batch = await ask('POST', '/v1/batch', { items: [{ op: 'create', ...request }] });
      const [item] = batch.body.results as unknown as { error: object }[];
      hidesStack({ text: batch.text, body: item.error }, what);
    }
    t.equal(sessions.size, 0);
    for (const [at, method, path, body, what] of [
      ['step', 'POST', '/step', { action: 'add' }, /failed at step 1: it broke$/],
      ['late step', 'POST', '/step', { action: 'add' }, /failed at step 1: it broke$/],
      ['structured', 'GET', '', undefined, /failed to show step 0: it broke$/],
      ['structured', 'GET', '/render?mode=structured', undefined, /failed to show step 0: it broke$/],
      ['render', 'GET', '/render?mode=png', undefined, /failed to paint step 0: it broke$/],
      ['plan', 'POST', '/reference', { policy: 'optimal' }, /failed to plan with optimal: it broke$/],
    ] as const) {
      hidesStack(await ask(method, `/v1/sessions/${await broken(at)}${path}`, body), what);
    }
  },
);

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

t.test('every operation checks its scope on every transport', async t => {
  const token = (name: string, ...scopes: string[]) => ({ name, sha256: hashToken(name), scopes });
  const tokens = JSON.stringify([
    token('play', 'play'),
    token('register', 'register'),
    token('admin', 'admin'),
  ]);
  const app = await listening(t, { tokens });
  const wires = new Map<string, Awaited<ReturnType<typeof dial>>>();
  for (const name of ['play', 'register', 'admin']) {
    wires.set(name, await dial(t, app, '/v1/ws', { headers: bearer(name) }));
  }
  for (const { name: op, method, path, scope, params } of OPERATIONS) {
    const names = Object.keys(params.properties);
    const ids = Object.fromEntries(names.map(name => [name, name === 'session_id' ? 's1' : 'me/None-v0']));
    const url = path.replaceAll(/\{(\w+)\}/g, (_match, name: string) => encodeURIComponent(ids[name]));
    const body = method === 'POST' || method === 'PUT' ? requestOf(op) : undefined;
    isProblem(t, await app.ask(method, url, body), 'unauthorized');
    for (const [name, { send, next }] of wires) {
      const allowed = name === scope || name === 'admin';
      const codes = [
        (await app.ask(method, url, body, bearer(name))).body.code,
        ...((await batchCodes(app, { op, ...ids, ...body }, name)) as unknown[]),
      ];
      send({ id: 1, op, ...ids, ...body });
      const frame = await next();
      codes.push((frame.error as unknown as { code?: string } | undefined)?.code as never);
      for (const code of codes) t.equal(String(code) === 'forbidden', !allowed, `${op} by ${name}: ${code}`);
    }
  }
});

async function batchCodes({ ask }: TestApp, item: object, name: string): Promise<unknown[]> {
  const { body } = await ask('POST', '/v1/batch', JSON.stringify({ items: [item] }), bearer(name));
  return (body.results as unknown as { error?: { code: string } }[]).map(({ error }) => error?.code);
}

/** A body that passes the schema of an operation, so that its scope is what decides. */
function requestOf(op: string): JsonObject {
  switch (op) {
    case 'create':
      return { env_id: 'me/None-v0' };
    case 'step':
      return { action: 'add' };
    case 'restore':
      return { snapshot_id: 'x' };
    case 'register':
      return { env_id: 'me/None-v0', definition: { kind: 'nonsense' } };
    case 'replace':
      return { definition: { kind: 'nonsense' } };
    default:
      return {};
  }
}
