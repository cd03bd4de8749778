import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { Json } from '../../../shared/json.ts';
import { type Reply, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';

/** Steps and batches take the same way as every other request, with and without an empty query. */

const HANDLED = 'tracing:fastify.request.handler:start';

/** Number of requests that Fastify handles during some work. */
async function handled(work: () => Promise<unknown>): Promise<number> {
  let count = 0;
  const note = () => count++;
  subscribe(HANDLED, note);
  await work();
  unsubscribe(HANDLED, note);
  return count;
}

/** A reply without what may differ between two servers' replies to twins. */
function comparable({ status, headers, text }: Reply, sessionId: string): object {
  // After a body that it could not read Fastify hangs up, which nobody relies on.
  const { date: _date, connection: _close, 'keep-alive': _open, ...others } = headers;
  const same = text
    .replaceAll(sessionId, 'ID')
    .replaceAll(/"trace_id":"[0-9a-f]{32}"/g, '"trace_id":"TRACE"');
  return { status, headers: Object.fromEntries(Object.entries(others).sort()), text: same };
}

interface Case {
  readonly about: string;
  /** A text is sent as it is. */
  readonly body: Json | ((sessionId: string) => Json);
  readonly headers?: { readonly [name: string]: string };
  readonly session?: { readonly [key: string]: Json };
  readonly batch?: true;
  /** The environment waits to be let through. */
  readonly waits?: true;
}

const step = (more: { readonly [key: string]: Json }) => (sessionId: string) => ({
  op: 'step',
  session_id: sessionId,
  action: 'add',
  ...more,
});
const deep = (levels: number) => `{"action":${'['.repeat(levels)}1${']'.repeat(levels)}}`;
const TRACEPARENT = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` };

const CASES: readonly Case[] = [
  { about: 'a step', body: { action: 'add' } },
  { about: 'the step that was expected', body: { action: 'add', expected_step: 1 } },
  { about: 'another than was expected', body: { action: 'add', expected_step: 7 }, headers: TRACEPARENT },
  { about: 'an unknown action', body: { action: 'dance' } },
  { about: 'an action of a wrong type', body: { action: { a: 1 } } },
  { about: 'a missing action', body: {} },
  { about: 'an unknown key', body: { action: 'add', color: 'red' } },
  { about: 'what belongs elsewhere', body: { action: 'add', session_id: 'x' } },
  { about: 'a key in the body', body: { action: 'add', request_key: 'x' } },
  { about: 'no JSON', body: '{"action":' },
  { about: 'a forbidden key', body: '{"action":1,"__proto__":{}}' },
  { about: 'null', body: 'null' },
  { about: 'a list', body: '[]' },
  { about: 'what is too deep', body: deep(1000) },
  {
    about: 'a key that is too long',
    body: { action: 'add' },
    headers: { 'idempotency-key': 'x'.repeat(129) },
  },
  { about: 'a step under a key', body: { action: 'add' }, headers: { 'idempotency-key': 'k' } },
  {
    about: 'an environment that fails',
    body: { action: 'add' },
    session: { env_id: 'test/Broken-v0', config: { at: 'step' } },
  },
  {
    about: 'one that fails later',
    body: { action: 'add' },
    session: { env_id: 'test/Broken-v0', config: { at: 'late step' } },
  },
  { about: 'a slow step', body: { action: 'add' }, session: { env_id: 'test/Slow-v0' }, waits: true },
  {
    about: 'a slow step that is not waited for',
    body: { action: 'add', timeout_ms: 1 },
    session: { env_id: 'test/Slow-v0' },
  },
  { about: 'a batch', batch: true, body: id => ({ items: [step({})(id), step({})(id)] }) },
  {
    about: 'a batch under a key',
    batch: true,
    headers: { 'idempotency-key': 'b' },
    body: id => ({ items: [step({})(id)] }),
  },
  {
    about: 'items that fail',
    batch: true,
    body: id => ({ items: [step({ expected_step: 9 })(id), 1, { op: 'x' }, null] }),
  },
  { about: 'letters beyond ASCII', batch: true, body: { items: [{ op: '🧊é' }] } },
  { about: 'a batch that waits', batch: true, body: id => ({ items: [step({})(id)], wait: 1 }) },
  { about: 'an empty batch', batch: true, body: { items: [] } },
  { about: 'no batch', batch: true, body: { item: 1 } },
  { about: 'a batch that is too long', batch: true, body: { items: Array.from({ length: 9 }, () => 1) } },
];

async function ask(
  app: TestApp,
  { body, headers, session, batch, waits }: Case,
  query: string,
): Promise<object> {
  const id = await app.open({ seed: 1, ...session });
  const path = batch ? '/v1/batch' : `/v1/sessions/${id}/step`;
  const asked = typeof body === 'function' ? body(id) : body;
  const reply = app.ask('POST', path + query, asked, { ...headers });
  if (waits) {
    while (waiting.length === 0) await delay(1);
    waiting.shift()?.();
  }
  return comparable(await reply, id);
}

/** Two servers, so that a key of one is not one of the other. */
const twins = (t: Test) => Promise.all([testApp(t, { maxBatchItems: 8 }), testApp(t, { maxBatchItems: 8 })]);

t.test('steps and batches get the same reply with an empty query', async t => {
  const [first, second] = await twins(t);
  for (const one of CASES) {
    const plain = await ask(first, one, '');
    t.same(plain, await ask(second, one, '?'), one.about);
  }
});

t.test('unknown sessions are refused alike', async t => {
  const [first, second] = await twins(t);
  for (const id of ['unknown', 'x'.repeat(128)]) {
    const path = `/v1/sessions/${id}/step`;
    const plain = comparable(await first.ask('POST', path, { action: 'add' }), id);
    t.match(plain, { status: 404 });
    t.same(plain, comparable(await second.ask('POST', `${path}?`, { action: 'add' }), id));
  }
});

t.test('unusual requests get their status', async t => {
  const { ask, open } = await testApp(t, { bodyLimitBytes: 100 });
  const path = `/v1/sessions/${await open({ config: { preset: 'long' } })}/step`;
  const add = '{"action":"add"}';
  const CASES: readonly (readonly [
    number,
    string,
    string | undefined,
    { readonly [name: string]: string },
  ])[] = [
    [200, `${path}?`, add, {}],
    [422, `${path}?x=1`, add, {}],
    [415, path, add, { 'content-type': 'text/plain' }],
    [200, path, add, { 'content-type': 'application/json;charset=UTF-8' }],
    [422, path, undefined, {}],
    [413, path, JSON.stringify({ action: 'x'.repeat(200) }), {}],
    [200, path, add, { 'transfer-encoding': 'chunked' }],
    [200, path, add, { expect: '100-continue' }],
    [200, path.replace('v1', '%761'), add, {}],
  ];
  for (const [status, url, body, headers] of CASES) {
    const counted = await handled(async () => {
      t.equal((await ask('POST', url, body, headers)).status, status, `${url} ${JSON.stringify(headers)}`);
    });
    t.ok(counted <= 1);
  }
});
