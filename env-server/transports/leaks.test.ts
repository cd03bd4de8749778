import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { frameOf, openWebSocket } from '../../bench/floods/attacks.ts';
import type { JsonObject } from '../../shared/json.ts';
import { writeSampleRun } from '../../site/server/sample-runs.test-data.ts';
import type { TestApp } from '../../test/app.test-data.ts';
import { waiting } from '../../test/environments.test-data.ts';
import { liveBytes } from '../../test/live-bytes.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { hostOf, listening } from '../../test/wire.test-data.ts';

/**
 * Repeated small floods: what they leave in memory does not grow from one to the next. Each is repeated until one of
 * them leaves no more than {@link MAX_GROWTH}; code that is compiled meanwhile counts once, a leak counts every time.
 */

/** Bytes that a flood of hundreds may leave: far less than the smallest thing kept for each. */
const MAX_GROWTH = 192 * 1024;
const REPEATS = 6;
const MB = 1024 * 1024;
const LAKE = { env_id: 'FrozenLake-v0', config: { p_frozen: 1, max_steps: 10_000 } };

interface Flood {
  readonly name: string;
  /** Resolves when its clients are gone. */
  run(app: TestApp): Promise<unknown>;
}

const originOf = (app: TestApp): string => `http://${hostOf(app)}`;

const json = (frame: JsonObject): Buffer => frameOf(JSON.stringify({ id: 1, ...frame }));

async function gone(socket: Socket): Promise<void> {
  if (socket.closed) return;
  socket.destroy();
  await once(socket, 'close');
}

/** Sends frames to a WebSocket, reads this many bytes of replies, and leaves. */
async function frames(app: TestApp, sent: Buffer, count: number, path = '/v1/ws'): Promise<void> {
  const socket = await openWebSocket(originOf(app), path);
  let replies = 0;
  socket.on('data', (bytes: Buffer) => {
    for (const byte of bytes) if (byte === 0x81) replies++;
  });
  socket.resume();
  for (let i = 0; i < count; i++) socket.write(sent);
  await until(() => replies >= count || socket.closed);
  await gone(socket);
}

/** Sends texts to separate connections, and leaves without having read a reply. */
async function unread(app: TestApp, texts: readonly (string | Buffer)[]): Promise<void> {
  const [host, port] = hostOf(app).split(':');
  await Promise.all(
    texts.map(async sent => {
      const socket = connect({ host, port: Number(port) });
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      await new Promise(resolve => socket.write(sent, resolve));
      await gone(socket);
    }),
  );
}

/** Sends texts to separate connections, and leaves when the replies have begun, which nobody reads. */
async function begun(app: TestApp, texts: readonly string[]): Promise<void> {
  const [host, port] = hostOf(app).split(':');
  await Promise.all(
    texts.map(async sent => {
      const socket = connect({ host, port: Number(port) });
      socket.write(sent);
      await once(socket, 'readable');
      await gone(socket);
    }),
  );
}

/** A step of a session of the Open Reward Standard that takes long: its client leaves while events come. */
async function abandonedCall(app: TestApp): Promise<void> {
  const { text } = await app.ask('POST', '/create_session', {});
  const headers = { 'x-session-id': /data: (.*)/.exec(text)![1] };
  await app.ask('POST', '/create', { env_name: 'test/Slow-v0', task_spec: { seed: 1 } }, headers);
  const body = JSON.stringify({ name: 'step', input: { action: 'add' } });
  const head = [
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    `X-Session-Id: ${headers['x-session-id']}`,
  ];
  await begun(app, [lines(app, 'POST /test%2FSlow-v0/call', head) + body]);
  for (const pass of waiting.splice(0)) pass();
  await app.ask('POST', '/delete', {}, headers);
}

const lines = (app: TestApp, head: string, more: readonly string[] = []): string =>
  [`${head} HTTP/1.1`, `Host: ${hostOf(app)}`, ...more, '\r\n'].join('\r\n');

async function closing(app: TestApp, more: JsonObject, play: (id: string) => Promise<unknown>) {
  const { status, body } = await app.ask('POST', '/v1/sessions', { ...LAKE, ...more });
  if (status !== 201) throw new Error(JSON.stringify(body));
  const id = String(body.session_id);
  await play(id);
  await app.ask('DELETE', `/v1/sessions/${id}`);
}

const FLOODS: readonly Flood[] = [
  { name: 'pings', run: app => frames(app, json({ op: 'ping' }), 500) },
  { name: 'bad frames', run: app => frames(app, frameOf('x'), 300) },
  {
    name: 'large frames',
    run: app => frames(app, json({ op: 'step', session_id: 's', action: Array(MB / 8).fill([]) as [] }), 3),
  },
  {
    name: 'pictures and steps of a WebSocket',
    run: app =>
      closing(app, {}, async session_id => {
        await frames(app, json({ op: 'render', session_id, mode: 'png' }), 100);
        await frames(app, json({ op: 'step', session_id, action: 1, request_key: 'one' }), 200);
      }),
  },
  {
    name: 'batches with keys and snapshots',
    run: app =>
      closing(app, { wrappers: [{ name: 'auto_reset' }] }, async session_id => {
        const step = { op: 'step', session_id, action: 1 };
        const steps = Array.from({ length: 300 }, (_, i) => ({ ...step, request_key: `k${i}` }));
        await app.ask('POST', '/v1/batch', { items: steps });
        await app.ask('POST', '/v1/batch', { items: Array(200).fill({ op: 'snapshot', session_id }) });
      }),
  },
  {
    name: 'groups that are opened and closed',
    async run(app) {
      const { body } = await app.ask('POST', '/v1/sessions', { ...LAKE, count: 300 });
      const opened = body.sessions as unknown as JsonObject[];
      const items = opened.map(({ session_id }) => ({ op: 'close', session_id }));
      await app.ask('POST', '/v1/batch', { items });
      // Ids of ended sessions are remembered for a time.
      app.wait(61);
      app.wait(61);
    },
  },
  {
    name: 'readers that never read',
    run: app =>
      unread(
        app,
        Array.from({ length: 10 }, () => lines(app, 'GET /v1/envs').repeat(100)),
      ),
  },
  {
    name: 'requests that do not end',
    run: app =>
      unread(
        app,
        Array.from({ length: 100 }, () =>
          lines(app, 'POST /v1/batch', ['Content-Type: application/json', 'Content-Length: 9999']),
        ),
      ),
  },
  {
    name: 'upgrades that are refused, and that are left at once',
    run: app =>
      unread(
        app,
        Array.from({ length: 100 }, (_, i) =>
          lines(app, i % 2 ? 'GET /v1/ws' : 'GET /v1/envs', [
            'Connection: Upgrade',
            'Upgrade: websocket',
            'Sec-WebSocket-Version: 13',
            'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
          ]),
        ),
      ),
  },
  {
    name: 'compressed bodies that are bombs',
    async run(app) {
      const bomb = gzipSync(Buffer.alloc(20 * MB, ' '));
      const head = [
        'Content-Type: application/json',
        'Content-Encoding: gzip',
        `Content-Length: ${bomb.length}`,
      ];
      const sent = Buffer.concat([Buffer.from(lines(app, 'POST /v1/sessions', head)), bomb]);
      await unread(app, Array(6).fill(sent));
      // It is answered after them.
      const [host, port] = hostOf(app).split(':');
      const last = connect({ host, port: Number(port) });
      last.write(sent);
      await once(last, 'data');
      await gone(last);
    },
  },
  {
    name: 'unknown paths, sessions and environments',
    async run(app) {
      for (let i = 0; i < 40; i++) {
        await app.ask('GET', `/no/${i}/${Math.random()}`);
        await app.ask('GET', `/v1/sessions/s${Math.random().toString(36).slice(2)}`);
        await app.ask('POST', '/v1/sessions', { env_id: `No${Math.random()}/Thing-v0` });
      }
    },
  },
  {
    name: 'replies that are left half read',
    run: app =>
      Promise.all(
        Array.from({ length: 30 }, async () => {
          const agent = new Agent();
          const request = get(`${originOf(app)}/openapi.json`, { agent });
          request.on('error', () => undefined);
          await once(request, 'response');
          request.destroy();
          agent.destroy();
        }),
      ),
  },
  {
    name: 'streams of events that nobody reads',
    async run(app) {
      await begun(app, Array(20).fill(lines(app, 'GET /runs/api/live?id=a')));
      for (let i = 0; i < 5; i++) await abandonedCall(app);
      app.wait(61);
      app.wait(61);
    },
  },
  {
    name: 'clients of OpenEnv',
    run: app =>
      Promise.all(
        Array.from({ length: 20 }, () =>
          frames(
            app,
            frameOf(JSON.stringify({ type: 'reset', data: {} })),
            2,
            '/compat/openenv/FrozenLake-v0/ws',
          ),
        ),
      ).then(() => {
        app.wait(61);
        app.wait(61);
      }),
  },
];

async function settled(t: Test, app: TestApp): Promise<void> {
  await until(
    () =>
      new Promise<boolean>(resolve =>
        // The connection of the test may stay.
        app.server.server.getConnections((_, count) => resolve(count <= 1)),
      ),
  );
  t.equal(app.sessions.size, 0, 'nothing is open');
}

t.test('floods leave nothing that grows', async t => {
  const runs = t.testdir();
  writeSampleRun(runs, 'a', { steps: 3 });
  const app = await listening(t, { goneSeconds: 60, idleTtlSeconds: 60, lifetimeSeconds: 60, runs });
  for (const { name, run } of FLOODS) {
    await t.test(name, async t => {
      await run(app);
      const growths: number[] = [];
      let before = await liveBytes();
      do {
        await run(app);
        await settled(t, app);
        const after = await liveBytes();
        growths.push(after - before);
        before = after;
      } while (growths.at(-1)! > MAX_GROWTH && growths.length < REPEATS);
      t.ok(growths.at(-1)! <= MAX_GROWTH, `grew by ${growths.join(', ')} bytes`);
    });
  }
});
