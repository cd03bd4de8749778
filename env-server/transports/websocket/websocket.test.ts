import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { deflateRawSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { frameOf } from '../../../bench/floods/attacks.ts';
import type { TestApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial as dialPath, hostOf, listening, type Wire } from '../../../test/wire.test-data.ts';

const dial = (
  t: Test,
  app: TestApp,
  options: { protocol?: string; headers?: { [name: string]: string } } = {},
): Promise<Wire> => dialPath(t, app, '/v1/ws', { protocol: 'ragen.json', ...options });

for (const protocol of ['ragen.json', 'ragen.msgpack']) {
  t.test(`${protocol}: every operation works in frames, answered under its id`, t =>
    everyOperation(t, protocol),
  );
}

async function everyOperation(t: Test, protocol: string) {
  const app = await listening(t);
  const { send, next, socket } = await dial(t, app, { protocol });
  t.equal(socket.protocol, protocol);
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
}

t.test('both subprotocols say the same', async t => {
  const app = await listening(t);
  const wires = [await dial(t, app), await dial(t, app, { protocol: 'ragen.msgpack' })];
  const session_id = await app.open({ config: { preset: 'long' } });
  const frames = [
    { id: 1, op: 'step', session_id, action: 'draw', request_key: 'k' },
    { id: 2, op: 'get', session_id },
    { id: 3, op: 'trajectory', session_id },
    { id: 4, op: 'render', session_id, mode: 'png' },
    { id: 5, op: 'get_environment', env_id: 'Sokoban-v0' },
    { id: 6, op: 'batch', items: [{ op: 'list' }, { op: 'get', session_id }], wait: 2 },
  ];
  for (const frame of frames) {
    const [first, second] = await Promise.all(
      wires.map(({ send, next }) => {
        send(frame);
        return next();
      }),
    );
    t.same(second, first, frame.op);
    t.equal(first.ok, true);
  }
});

t.test('an unknown subprotocol is refused, a known one among others is taken, none is JSON', async t => {
  const app = await listening(t);
  const offer = async (...protocols: string[]) => {
    const socket = new WebSocket(`ws://${hostOf(app)}/v1/ws`, protocols);
    t.teardown(() => socket.terminate());
    return Promise.race([
      once(socket, 'open').then(() => socket.protocol),
      once(socket, 'unexpected-response').then(async ([, response]) => {
        let text = '';
        for await (const chunk of response) text += chunk;
        return JSON.parse(text);
      }),
    ]);
  };
  t.match(await offer('graphql-ws', 'soap'), {
    status: 400,
    code: 'bad_request',
    detail:
      'the subprotocol graphql-ws, soap is not known; offer ragen.json or ragen.msgpack, or none for ragen.json',
  });
  t.equal(await offer('soap', 'ragen.msgpack', 'ragen.json'), 'ragen.msgpack', 'the first that is known');
  t.equal(await offer(), '');
});

t.test('a frame of the wrong kind, or that is not MessagePack, gets its problem', async t => {
  const app = await listening(t);
  const json = await dial(t, app);
  json.socket.send(Buffer.from('{"id":1,"op":"ping"}'));
  t.match(await json.next(), {
    id: null,
    error: { code: 'bad_json', detail: 'this socket speaks ragen.json: frames must be text' },
  });
  const packed = await dial(t, app, { protocol: 'ragen.msgpack' });
  packed.send('{"id":1,"op":"ping"}');
  t.match(await packed.next(), {
    id: null,
    error: { code: 'bad_json', detail: 'this socket speaks ragen.msgpack: frames must be binary' },
  });
  packed.socket.send(Buffer.from([0x81]));
  t.match(await packed.next(), { id: null, error: { code: 'bad_json', detail: /ends within a value/ } });
  packed.send({ id: 1, op: 'step', session_id: await app.open(), action: new Uint8Array(3) });
  t.match(await packed.next(), { id: null, error: { code: 'bad_json', detail: /binary data/ } });
  packed.send({ id: 2, op: 'ping' });
  t.match(await packed.next(), { id: 2, ok: true });
});

t.test('wrong frames get their problem and the socket lives on', async t => {
  const { send, next } = await dial(t, await listening(t));
  const cases: [object | string, object][] = [
    ['{"id":1,', { id: null, ok: false, error: { code: 'bad_json' } }],
    ['[]', { id: null, error: { code: 'invalid_request' } }],
    [{ op: 'ping' }, { id: null, error: { code: 'invalid_request', errors: [{ pointer: '/id' }] } }],
    [
      { id: 2 ** 53, op: 'ping' },
      { id: null, error: { detail: /integer of at most 2\^53 - 1/ } },
    ],
    [
      { id: 1.5, op: 'ping' },
      { id: null, error: { code: 'invalid_request' } },
    ],
    [
      { id: 'x'.repeat(1025), op: 'ping' },
      { id: null, error: { detail: /string of at most 1024 characters/, errors: [{ pointer: '/id' }] } },
    ],
    [
      { id: 'x'.repeat(1025), op: 'get', session_id: 's' },
      { id: null, error: { code: 'invalid_request', errors: [{ pointer: '/id' }] } },
    ],
    [
      { id: 'x'.repeat(1024), op: 'get', session_id: 's' },
      { id: 'x'.repeat(1024), error: { code: 'unknown_session' } },
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

t.test('a session outlives its socket: after a reconnect the client continues by id and key', async t => {
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

t.test('compression is not negotiated, and a compressed frame closes its socket only', async t => {
  const app = await listening(t);
  const other = await dial(t, app);
  const { socket } = await dial(t, app);
  t.equal(socket.extensions, '', 'the client had offered permessage-deflate');
  const closed = once(socket, 'close');
  const bomb = deflateRawSync(Buffer.alloc(1024 * 1024, ' '));
  // The first reserved bit says that the frame is compressed.
  const frame = frameOf(bomb);
  frame[0] |= 0x40;
  (socket as unknown as { _socket: Socket })._socket.write(frame);
  t.equal((await closed)[0], 1002);
  other.send({ id: 1, op: 'ping' });
  t.match(await other.next(), { id: 1, ok: true });
});

t.test('an upgrade that is refused is answered, and its connection ends', async t => {
  const app = await listening(t);
  const [host, port] = hostOf(app).split(':');
  for (const [path, status] of [
    ['/v1/nothing', 404],
    ['/v1/%', 400],
  ]) {
    const socket = connect(Number(port), host);
    socket.write(
      `GET ${path} HTTP/1.1\r\nHost: ${hostOf(app)}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    );
    let answer = '';
    for await (const piece of socket) answer += piece;
    t.match(answer, RegExp(`^HTTP/1.1 ${status} [^]*application/problem\\+json`));
  }
});

/** A raw WebSocket that sends only what the test writes: it answers no pings. */
async function rawSocket(t: Test, app: TestApp): Promise<Socket> {
  const [host, port] = hostOf(app).split(':');
  const socket = connect(Number(port), host);
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  socket.write(
    [
      'GET /v1/ws HTTP/1.1',
      `Host: ${hostOf(app)}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
      '\r\n',
    ].join('\r\n'),
  );
  const [head] = await once(socket, 'data');
  t.match(String(head), /^HTTP\/1\.1 101 /);
  return socket;
}

/** A masked text frame of at most 125 bytes; the mask is zero. */
const masked = (text: string) =>
  Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);

const sockets = async (app: TestApp) =>
  Number(/ragen_websockets (\d+)/.exec((await app.ask('GET', '/metrics')).text)![1]);

t.test('half-open sockets are cut and hold no place; their sessions live', async t => {
  // Long enough that this process, which is its own peer, is never so late itself.
  const app = await listening(t, { heartbeatSeconds: 1 });
  const alive = await dial(t, app);
  alive.send({ id: 1, op: 'create', env_id: 'test/Counter-v0' });
  const { session_id } = (await alive.next()).result;
  const mute = await rawSocket(t, app);
  const deaf = await rawSocket(t, app);
  t.equal(await sockets(app), 3);
  mute.resume();
  mute.write(masked(`{"id":1,"op":"get","session_id":"${session_id}"}`));
  // A peer that reads nothing either: what it is owed waits in the server.
  deaf.pause();
  for (let i = 0; i < 2000; i++) deaf.write(masked('{"id":1,"op":"list_environments"}'));
  await once(mute, 'close');
  await until(async () => (await sockets(app)) <= 1);
  t.equal(alive.socket.readyState, WebSocket.OPEN, 'one that answers pings stays');
  alive.send({ id: 2, op: 'step', session_id: String(session_id), action: 'add' });
  t.match(await alive.next(), { id: 2, ok: true, result: { step: 1 } });
});

for (const protocol of ['ragen.json', 'ragen.msgpack']) {
  t.test(
    `${protocol}: a batch answers when as many are ready as it waits for, and names the rest`,
    async t => {
      const app = await listening(t);
      const { send, next } = await dial(t, app, { protocol });
      const slow = [await app.open({ env_id: 'test/Slow-v0' }), await app.open({ env_id: 'test/Slow-v0' })];
      const items = [slow[0], await app.open(), slow[1]].map((session_id, i) => ({
        op: 'step',
        session_id,
        action: 'add',
        request_key: `k${i}`,
      }));
      send({ id: 1, op: 'batch', items, wait: 2 });
      while (waiting.length < 2) await new Promise(resolve => setImmediate(resolve));
      waiting.pop()!();
      const first = await next();
      t.match(first, {
        id: 1,
        result: {
          pending: [0],
          results: [{ ok: false, pending: true }, { ok: true }, { ok: true, result: { step: 1 } }],
        },
      });
      send({ id: 2, op: 'batch', items, wait: 1 });
      t.match(await next(), { id: 2, result: { pending: [0] } }, 'what is ready is known under its key');
      waiting.pop()!();
      send({ id: 3, op: 'batch', items });
      const { result } = await next();
      t.match(result, { results: [{ ok: true, result: { step: 1 } }, { ok: true }, { ok: true }] });
      t.equal(result.pending, undefined);
      t.equal(waiting.length, 0, 'nothing was stepped twice');
    },
  );
}

t.test('pages of another origin are refused', async t => {
  const app = await listening(t);
  const dialFrom = (origin: string) => dial(t, app, { headers: { origin } });
  await t.rejects(dialFrom('http://evil.example'), /403/);
  const { port } = app.server.server.address() as { port: number };
  const { send, next } = await dialFrom(`http://127.0.0.1:${port}`);
  send({ id: 1, op: 'ping' });
  t.match(await next(), { ok: true });
});

t.test('a session with a failing environment answers; the socket and its other sessions live', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app);
  const faulty = await app.open({ env_id: 'test/Faulty-v0' });
  const session_id = await app.open();
  send({ id: 1, op: 'step', session_id: faulty, action: 'throw' });
  send({ id: 2, op: 'step', session_id, action: 'add' });
  t.match(await next(), { id: 1, ok: false, error: { code: 'environment_fault' } });
  t.match(await next(), { id: 2, ok: true });
});

t.test('a late result that cannot be written is answered as a fault, and the socket continues', async t => {
  const app = await listening(t);
  const session_id = await app.open({ env_id: 'test/Broken-v0', config: { at: 'late reply' } });
  for (const protocol of ['ragen.json', 'ragen.msgpack']) {
    const { send, next } = await dial(t, app, { protocol });
    send({ id: 1, op: 'step', session_id, action: 'add' });
    t.match(await next(), { id: 1, ok: false, error: { code: 'internal' } }, protocol);
    send({ id: 2, op: 'ping' });
    t.match(await next(), { id: 2, ok: true });
  }
});
