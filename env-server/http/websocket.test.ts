import { once } from 'node:events';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import type { TestApp } from '../app.test-data.ts';
import { waiting } from '../environments.test-data.ts';
import { dial as dialPath, listening, type Wire } from '../wire.test-data.ts';

const dial = (t: Test, app: TestApp, options: { headers?: { [name: string]: string } } = {}): Promise<Wire> =>
  dialPath(t, app, '/v1/ws', { protocol: 'ragen.json', ...options });

t.test('every operation works in frames, answered under its id', async t => {
  const app = await listening(t);
  const { send, next, socket } = await dial(t, app);
  t.equal(socket.protocol, 'ragen.json');
  send({ id: 1, op: 'create', env_id: 'test/Counter-v0', seed: 5 });
  const created = await next();
  t.match(created, { id: 1, ok: true, result: { seed: 5, step: 0 } });
  const { session_id } = created.result;
  const ask = async (frame: object) => {
    send(frame);
    return next();
  };
  t.match(await ask({ id: 'two', op: 'step', session_id, action: 'add' }), {
    id: 'two',
    ok: true,
    result: { step: 1, reward: 1 },
  });
  t.match(await ask({ id: 3, op: 'get', session_id }), { id: 3, result: { return: 1 } });
  t.match(await ask({ id: 4, op: 'trajectory', session_id }), {
    result: { records: [{ type: 'reset' }, { type: 'step' }] },
  });
  t.match(await ask({ id: 5, op: 'ping' }), { id: 5, ok: true, result: { pong: true } });
  t.match(await ask({ id: 6, op: 'list_environments', search: 'counter' }), {
    result: { environments: [{}] },
  });
  t.match(
    await ask({ id: 7, op: 'batch', items: [{ op: 'step', session_id, action: 'add' }, { op: 'x' }] }),
    {
      id: 7,
      ok: true,
      result: {
        results: [
          { ok: true, result: { step: 2 } },
          { ok: false, error: { code: 'invalid_request' } },
        ],
      },
    },
  );
  t.match(await ask({ id: 8, op: 'close', session_id }), { id: 8, ok: true, result: null });
  t.match(await ask({ id: 9, op: 'get', session_id }), {
    id: 9,
    ok: false,
    error: { code: 'session_closed', status: 410, trace_id: String },
  });
});

t.test('wrong frames get their problem and the socket lives on', async t => {
  const { send, next } = await dial(t, await listening(t));
  const cases: [object | string, object][] = [
    ['{"id":1,', { id: null, ok: false, error: { code: 'bad_json' } }],
    ['[]', { id: null, error: { code: 'invalid_request' } }],
    [{ op: 'ping' }, { id: null, error: { code: 'invalid_request', errors: [{ pointer: '/id' }] } }],
    [
      { id: 1.5, op: 'ping' },
      { id: null, error: { code: 'invalid_request' } },
    ],
    [{ id: 2 }, { id: 2, error: { code: 'invalid_request', errors: [{ pointer: '/op' }] } }],
    [
      { id: 3, op: 'sing' },
      { id: 3, error: { detail: /unknown op "sing"; known are .*batch, ping/ } },
    ],
    [
      { id: 4, op: 'ping', payload: 1 },
      { id: 4, error: { errors: [{ pointer: '/payload' }] } },
    ],
    [
      { id: 5, op: 'step', session_id: 's' },
      { id: 5, error: { errors: [{ pointer: '/action' }] } },
    ],
    [
      { id: 6, op: 'batch' },
      { id: 6, error: { errors: [{ pointer: '/items' }] } },
    ],
  ];
  for (const [frame, reply] of cases) {
    send(frame);
    t.match(await next(), reply);
  }
  send({ id: 10, op: 'ping' });
  t.match(await next(), { id: 10, ok: true });
});

t.test('replies overtake slow ones; steps of one session stay in order', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app);
  const slow = await app.open({ env_id: 'test/Slow-v0' });
  const quick = await app.open();
  send({ id: 1, op: 'step', session_id: slow, action: 'add' });
  send({ id: 2, op: 'step', session_id: slow, action: 'draw' });
  send({ id: 3, op: 'get', session_id: slow });
  send({ id: 4, op: 'step', session_id: quick, action: 'add' });
  send({ id: 5, op: 'step', session_id: quick, action: 'add' });
  t.match(await next(), { id: 4, result: { step: 1 } });
  t.match(await next(), { id: 5, result: { step: 2 } });
  for (const step of [1, 2]) {
    while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
    waiting.shift()!();
    t.match(await next(), { id: step, result: { step } });
  }
  t.match(await next(), { id: 3, result: { step: 2 } });
});

t.test('many frames at once are all answered, in order where nothing is slow', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app);
  const session_id = await app.open({ config: { preset: 'long' } });
  for (let id = 1; id <= 500; id++) send({ id, op: 'step', session_id, action: 'draw' });
  for (let id = 1; id <= 500; id++) t.match(await next(), { id, result: { step: id } });
});

t.test('frames in flight are capped', async t => {
  const app = await listening(t, { maxFramesInFlight: 2 });
  const { send, next } = await dial(t, app);
  const ids = [await app.open({ env_id: 'test/Slow-v0' }), await app.open({ env_id: 'test/Slow-v0' })];
  for (const [id, session_id] of ids.entries()) send({ id, op: 'step', session_id, action: 'add' });
  send({ id: 2, op: 'get', session_id: await app.open() });
  t.match(await next(), {
    id: 2,
    ok: false,
    error: { code: 'too_many_requests', status: 429, retry_after_s: 1, retryable: true },
  });
  send({ id: 3, op: 'ping' });
  t.match(await next(), { id: 3, ok: true }, 'a ping is always answered');
  for (const pass of waiting.splice(0)) pass();
  t.same(new Set([(await next()).id, (await next()).id]), new Set([0, 1]), 'nothing is lost');
  send({ id: 4, op: 'list' });
  t.match(await next(), { id: 4, ok: true });
});

t.test('a session outlives its socket: after a reconnect the client goes on by id and key', async t => {
  const app = await listening(t);
  const first = await dial(t, app);
  first.send({ id: 1, op: 'create', env_id: 'test/Slow-v0' });
  const { session_id } = (await first.next()).result;
  first.send({ id: 2, op: 'step', session_id, action: 'add', request_key: 'k' });
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  first.socket.terminate();
  await once(first.socket, 'close');
  waiting.shift()!();

  const second = await dial(t, app);
  second.send({ id: 2, op: 'step', session_id, action: 'add', request_key: 'k' });
  t.match(await second.next(), { id: 2, ok: true, result: { step: 1 } });
  t.equal(waiting.length, 0, 'it was not stepped again');
});

t.test('a frame beyond the limit closes the socket with 1009, and only that socket', async t => {
  const app = await listening(t, { bodyLimitBytes: 1000 });
  const { send, socket } = await dial(t, app);
  send({ id: 1, op: 'create', env_id: 'x'.repeat(2000) });
  const [code] = await once(socket, 'close');
  t.equal(code, 1009);
  const { send: again, next } = await dial(t, app);
  again({ id: 1, op: 'ping' });
  t.match(await next(), { ok: true });
});

t.test('half-open sockets are cut', async t => {
  const app = await listening(t, { heartbeatSeconds: 0.05 });
  const { socket } = await dial(t, app);
  const alive = await dial(t, app);
  // A peer that answers no pings, as after a lost cable.
  socket.pong = () => undefined;
  await once(socket, 'close');
  t.equal(alive.socket.readyState, WebSocket.OPEN);
});

t.test('pages of another origin are refused', async t => {
  const app = await listening(t);
  const dialFrom = (origin: string) => dial(t, app, { headers: { origin } });
  await t.rejects(dialFrom('http://evil.example'), /403/);
  const { port } = app.server.server.address() as { port: number };
  const { send, next } = await dialFrom(`http://127.0.0.1:${port}`);
  send({ id: 1, op: 'ping' });
  t.match(await next(), { ok: true });
});

t.test('a session whose environment fails answers; the socket and its other sessions live', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app);
  const faulty = await app.open({ env_id: 'test/Faulty-v0' });
  const session_id = await app.open();
  send({ id: 1, op: 'step', session_id: faulty, action: 'throw' });
  send({ id: 2, op: 'step', session_id, action: 'add' });
  t.match(await next(), { id: 1, ok: false, error: { code: 'environment_fault' } });
  t.match(await next(), { id: 2, ok: true });
});
