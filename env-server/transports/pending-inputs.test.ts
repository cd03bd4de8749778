import { Agent, request } from 'node:http';
import { json } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import type { Json } from '../../shared/json.ts';
import { type Body, isProblem, type TestApp } from '../../test/app.test-data.ts';
import { waiting } from '../../test/environments.test-data.ts';
import { liveBytes } from '../../test/live-bytes.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { dial, hostOf, listening } from '../../test/wire.test-data.ts';
import { MAX_PENDING_BYTES, MAX_PENDING_BYTES_PER_CLIENT } from '../sessions/limits/budgets.ts';
import { hashToken } from './access/auth.ts';

/** Limit on the bytes that pending operations hold, over every transport. */

const MB = 1024 * 1024;
const SLOW = { env_id: 'test/Slow-v0' };
const tokens = JSON.stringify(
  ['ann', 'bob'].map(name => ({ name, sha256: hashToken(`secret-${name}`), scopes: ['play'] })),
);
const as = (name: string) => ({ authorization: `Bearer secret-${name}` });

async function opened(app: TestApp, headers = {}, more: { [key: string]: Json } = SLOW): Promise<string> {
  const { body } = await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', ...more }, headers);
  return String(body.session_id);
}

/** A session with a step that is not done. */
async function busySession(app: TestApp, headers = {}): Promise<string> {
  const id = await opened(app, headers);
  const before = waiting.length;
  await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add', timeout_ms: 1 }, headers);
  t.equal(waiting.length, before + 1);
  return id;
}

/** Sends large steps and hangs up after a moment, until one is refused; returns how many were accepted. */
async function fill(app: TestApp, id: string, headers = {}): Promise<number> {
  const action = 'x'.repeat(4 * MB - 100);
  for (let taken = 0; ; taken++) {
    const reply = await app.ask('POST', `/v1/sessions/${id}/step`, { action, timeout_ms: 1 }, headers);
    if (reply.status === 504) continue;
    isProblem(t, reply, 'too_many_requests');
    t.equal(reply.headers['retry-after'], '1');
    return taken;
  }
}

async function letThrough(app: TestApp): Promise<void> {
  await until(() => {
    for (const pass of waiting.splice(0)) pass();
    return app.sessions.pendingInputs.bytes === 0;
  });
}

/** Sends a request with a compressed body. */
async function askCompressed(t: Test, app: TestApp, path: string, body: Json): Promise<[number, Body]> {
  const agent = new Agent();
  t.teardown(() => agent.destroy());
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
  const sent = request(`http://${hostOf(app)}${path}`, { method: 'POST', agent, headers });
  sent.end(gzipSync(JSON.stringify(body)));
  return new Promise((resolve, reject) => {
    sent.on('response', async response => resolve([response.statusCode!, (await json(response)) as Body]));
    sent.on('error', reject);
  });
}

t.test('large steps that wait are refused beyond the share of a token, and only they', async t => {
  const app = await listening(t, { tokens });
  const idle = await opened(app, as('ann'), {});
  const busy = await busySession(app, as('ann'));
  const taken = await fill(app, busy, as('ann'));
  t.ok(Math.abs(taken - MAX_PENDING_BYTES_PER_CLIENT / (4 * MB)) <= 1, `${taken} were taken`);
  const step = (id: string, action: string, name: string) =>
    app.ask('POST', `/v1/sessions/${id}/step`, { action }, as(name));
  t.equal((await step(busy, 'add', 'ann')).status, 429, 'what would wait');
  t.equal((await step(idle, 'x'.repeat(5000), 'ann')).status, 429, 'what is large');
  t.equal((await step(idle, 'add', 'ann')).status, 200, 'what is small and need not wait');
  const other = await busySession(app, as('bob'));
  t.ok((await fill(app, other, as('bob'))) >= taken - 1, 'another token has its own share');
  t.ok(app.sessions.pendingInputs.bytes < MAX_PENDING_BYTES + 8 * MB);
  await letThrough(app);
  t.equal((await step(idle, 'x'.repeat(5000), 'ann')).status, 200, 'afterward there is room');
});

t.test('the limit holds for every transport', async t => {
  const app = await listening(t);
  const idle = await app.open();
  const busy = await busySession(app);
  const openEnv = await dial(t, app, '/compat/openenv/test%2FCounter-v0/ws');
  const socket = await dial(t, app, '/v1/ws');
  await fill(app, busy);
  const action = 'x'.repeat(5000);
  const path = `/v1/sessions/${idle}/step`;
  const refused = { code: 'too_many_requests', retryable: true };
  t.match(await app.ask('POST', path, { action }), { status: 429, body: refused });
  t.match(await app.ask('POST', `${path}?`, { action }), { status: 429, body: refused });
  t.match(await askCompressed(t, app, path, { action }), [429, refused]);
  const items = [{ op: 'step', session_id: idle, action }];
  t.match((await app.ask('POST', '/v1/batch', { items })).body, { results: [{ error: refused }] });
  socket.send({ id: 1, op: 'step', session_id: idle, action });
  t.match(await socket.next(), { id: 1, ok: false, error: refused });
  socket.send({ id: 2, op: 'batch', items });
  t.match(await socket.next(), { id: 2, result: { results: [{ error: refused }] } });
  openEnv.send({ type: 'step', data: { action } });
  t.match(await openEnv.next(), {
    type: 'error',
    data: { code: 'EXECUTION_ERROR', message: /not done hold/ },
  });
  t.match(await app.ask('POST', `/compat/gym/v1/envs/${idle}/step`, { action }), {
    status: 429,
    body: { code: 'too_many_requests' },
  });
  const call = {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'step', arguments: { action } },
  };
  t.match(await app.ask('POST', '/mcp/test%2FCounter-v0', call), { status: 429, body: refused });
  await letThrough(app);
});

t.test('a body counts while its handler is at another operation', async t => {
  const app = await listening(t);
  const busy = await busySession(app);
  // The first step of an instance looks up what it is, for which it waits.
  const stepped = app.ask('POST', `/compat/gym/v1/envs/${busy}/step`, { action: 'x'.repeat(MB) });
  await until(() => app.sessions.pendingInputs.bytes > MB);
  await letThrough(app);
  t.equal((await stepped).status, 200);
});

t.test('requests that wait hold nothing but the inputs of their operations', async t => {
  const app = await listening(t);
  const busy = await busySession(app);
  const before = await liveBytes();
  const count = 8;
  const large = 'x'.repeat(2 * MB);
  const answered = Array.from({ length: count }, () => [
    app.ask('POST', `/v1/sessions/${busy}/step`, { action: large }),
    app.ask('POST', '/v1/batch', { items: [{ op: 'step', session_id: busy, action: 'add' }, { op: large }] }),
  ]).flat();
  await until(() => app.sessions.waiting === 2 * count);
  const others = (await liveBytes()) - before - app.sessions.pendingInputs.bytes;
  t.ok(others < count * MB, `${(others / MB).toFixed(1)} MB`);
  await letThrough(app);
  await Promise.all(answered);
});
