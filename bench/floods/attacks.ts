import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { encode } from '@msgpack/msgpack';
import type { JsonObject } from '../../shared/json.ts';

/** Something that one client does to a server to keep it from serving others. It continues until its process is killed. */
export interface Attack {
  readonly name: string;
  /** @param origin of the server */
  run(origin: string): Promise<unknown>;
}

const CHUNK_BYTES = 2_700_000;
const MB = 1024 * 1024;
/** Longest wait of an attack for a free session. */
const MAX_FULL_MS = 10_000;
const SLOW_CLIENTS = 300;
const SLOW_MS = 500;

/** Posts, again every 50 ms while the server is full, which other clients of a soak may make it for moments. */
async function post(origin: string, path: string, body: JsonObject): Promise<JsonObject> {
  const request = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
  for (const end = performance.now() + MAX_FULL_MS; ; await delay(50)) {
    const response = await fetch(origin + path, request);
    const text = await response.text();
    if (response.ok) return JSON.parse(text) as JsonObject;
    if (response.status !== 429 || performance.now() > end) throw new Error(text);
  }
}

async function openSession(origin: string, body: JsonObject): Promise<string> {
  return String((await post(origin, '/v1/sessions', body)).session_id);
}

const lake = (origin: string) =>
  openSession(origin, { env_id: 'FrozenLake-v0', config: { p_frozen: 1, max_steps: 10_000 } });

/** Sockets of `/v1/ws` that send a frame again and again and read the replies. */
async function frames(origin: string, sockets: number, frame: Buffer, protocol?: string): Promise<void> {
  await Promise.all(
    Array.from({ length: sockets }, async () => {
      const socket = await openWebSocket(origin, '/v1/ws', protocol);
      socket.resume();
      await pour(socket, repeated(frame, CHUNK_BYTES));
    }),
  );
}

const json = (frame: JsonObject): Buffer => frameOf(JSON.stringify({ id: 1, ...frame }));

/** Connections of HTTP that send a request again and again without waiting for replies, which they read. */
async function requests(origin: string, connections: number, head: string, body = ''): Promise<void> {
  const request = [
    `${head} HTTP/1.1`,
    `Host: ${new URL(origin).host}`,
    ...(body === '' ? [] : ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]),
    `\r\n${body}`,
  ].join('\r\n');
  await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = await openSocket(origin);
      socket.resume();
      await pour(socket, repeated(Buffer.from(request), CHUNK_BYTES));
    }),
  );
}

/** Clients that send a request so slowly that it never ends; who is cut begins again. */
async function slowly(origin: string, begun: string, more: string): Promise<void> {
  await Promise.all(
    Array.from({ length: SLOW_CLIENTS }, async () => {
      for (;;) {
        const socket = await openSocket(origin);
        socket.resume();
        socket.write(begun);
        while (socket.writable) {
          await delay(SLOW_MS);
          socket.write(more);
        }
      }
    }),
  );
}

function nested(levels: number): string {
  return `${'['.repeat(levels)}${']'.repeat(levels)}`;
}

/** A room that takes long to make. */
const HEAVY = { dim_room: [12, 12], num_boxes: 6, search_depth: 1000 };

export const ATTACKS: readonly Attack[] = [
  { name: 'none, for comparison', run: () => delay(2 ** 30) },
  {
    name: 'pictures: one WebSocket, frames "render" of a PNG',
    run: async origin =>
      frames(origin, 1, json({ op: 'render', session_id: await lake(origin), mode: 'png' })),
  },
  {
    name: 'pictures that change: one WebSocket, steps and PNGs in turn',
    async run(origin) {
      const session_id = await openSession(origin, {
        env_id: 'Sokoban-v0',
        config: { dim_room: [20, 20], num_boxes: 1, search_depth: 20, max_steps: 10_000 },
      });
      const two = [1, 2, 3, 4].flatMap(action => [
        json({ op: 'step', session_id, action }),
        json({ op: 'render', session_id, mode: 'png' }),
      ]);
      await frames(origin, 1, Buffer.concat(two));
    },
  },
  { name: 'pings: five WebSockets', run: origin => frames(origin, 5, json({ op: 'ping' })) },
  { name: 'bad frames of one byte: five WebSockets', run: origin => frames(origin, 5, frameOf('x')) },
  {
    name: 'frames of 1 MB: two WebSockets',
    run: async origin =>
      frames(
        origin,
        2,
        json({ op: 'step', session_id: await lake(origin), action: Array(MB / 4).fill([]) as [] }),
      ),
  },
  {
    name: 'frames nested deeply: two WebSockets',
    run: origin => frames(origin, 2, frameOf(`{"id":1,"op":"step","action":${nested(MB / 2)}}`)),
  },
  {
    name: 'MessagePack of 4 MB of empty lists: two WebSockets',
    async run(origin) {
      const bomb = encode({ id: 1, op: 'step', action: Array(Math.floor(3.9 * MB)).fill([]) });
      await frames(origin, 2, frameOf(bomb), 'ragen.msgpack');
    },
  },
  {
    name: 'batches of 4,096 pictures: one WebSocket',
    async run(origin) {
      const session_id = await lake(origin);
      const items = Array(4096).fill({ op: 'render', session_id, mode: 'png' }) as JsonObject[];
      await frames(origin, 1, json({ op: 'batch', items }));
    },
  },
  {
    name: 'batches of 4,096 steps: one WebSocket',
    async run(origin) {
      const session_id = await lake(origin);
      const items = Array(4096).fill({ op: 'step', session_id, action: 1 }) as JsonObject[];
      await frames(origin, 1, json({ op: 'batch', items }));
    },
  },
  {
    name: 'heavy rooms: one WebSocket, groups of Sokoban',
    run: origin => frames(origin, 1, json({ op: 'create', env_id: 'Sokoban-v0', config: HEAVY, ttl_s: 1 })),
  },
  {
    name: 'trajectories of long episodes: one WebSocket',
    async run(origin) {
      const session_id = await lake(origin);
      const items = Array(4000).fill({ op: 'step', session_id, action: 1 }) as JsonObject[];
      await post(origin, '/v1/batch', { items });
      await frames(origin, 1, json({ op: 'trajectory', session_id }));
    },
  },
  {
    name: 'snapshots of long episodes, by batches',
    async run(origin) {
      const action = 'x'.repeat(2000);
      for (;;) {
        const session_id = await openSession(origin, {
          env_id: 'MetaMathQA-v0',
          wrappers: [{ name: 'auto_reset' }],
        });
        const step = { op: 'step', session_id, action };
        await post(origin, '/v1/batch', { items: Array(600).fill(step) });
        await post(origin, '/v1/batch', { items: Array(1024).fill({ op: 'snapshot', session_id }) });
        await fetch(`${origin}/v1/sessions/${session_id}`, { method: 'DELETE' });
      }
    },
  },
  {
    name: 'pipelining: five connections, GET /v1/envs',
    run: origin => requests(origin, 5, 'GET /v1/envs'),
  },
  {
    name: 'pipelining: five connections, pictures',
    run: async origin => requests(origin, 5, `GET /v1/sessions/${await lake(origin)}/render?mode=png`),
  },
  {
    name: 'pipelining: five connections, batches of 32 steps',
    async run(origin) {
      const session_id = await lake(origin);
      const items = Array(32).fill({ op: 'step', session_id, action: 1 }) as JsonObject[];
      await requests(origin, 5, 'POST /v1/batch', JSON.stringify({ items }));
    },
  },
  {
    name: 'pipelining: five connections, GET of a path that is not there',
    run: origin => requests(origin, 5, 'GET /x'),
  },
  {
    name: 'readers that never read: ten WebSockets asking for lists',
    async run(origin) {
      const frame = repeated(json({ op: 'list_environments' }), CHUNK_BYTES);
      await Promise.all(
        Array.from({ length: 10 }, async () => pour(await openWebSocket(origin, '/v1/ws'), frame)),
      );
    },
  },
  {
    name: 'readers that never read: ten connections asking for lists',
    async run(origin) {
      const request = Buffer.from(`GET /v1/envs HTTP/1.1\r\nHost: ${new URL(origin).host}\r\n\r\n`);
      await Promise.all(
        Array.from({ length: 10 }, async () =>
          pour(await openSocket(origin), repeated(request, CHUNK_BYTES)),
        ),
      );
    },
  },
  {
    name: 'slow headers: 300 connections',
    run: origin => slowly(origin, 'GET /livez HTTP/1.1\r\nHost: a\r\n', 'X-A: b\r\n'),
  },
  {
    name: 'slow bodies: 300 connections',
    run: origin =>
      slowly(
        origin,
        'POST /v1/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n',
        ' '.repeat(10_000),
      ),
  },
  {
    name: 'OpenEnv: two WebSockets, steps',
    async run(origin) {
      const frame = repeated(frameOf(JSON.stringify({ type: 'step', data: { action: 1 } })), CHUNK_BYTES);
      await Promise.all(
        [0, 1].map(async () => {
          const socket = await openWebSocket(origin, '/compat/openenv/FrozenLake-v0/ws');
          socket.resume();
          await pour(socket, frame);
        }),
      );
    },
  },
  {
    name: 'gym: five connections, pipelined steps',
    async run(origin) {
      const { instance_id } = await post(origin, '/compat/gym/v1/envs/', { env_id: 'FrozenLake-v0' });
      const step = `/compat/gym/v1/envs/${String(instance_id)}/step/`;
      await requests(origin, 5, `POST ${step}`, JSON.stringify({ action: 1, render: false }));
    },
  },
];

const FINAL_TEXT = 0x81;
const FINAL_BINARY = 0x82;
const MASKED = 0x80;
const MAX_SHORT = 125;
const MAX_16_BIT = 0xffff;

/** A TCP connection that ignores errors and its end: the server may cut it. */
async function openSocket(origin: string): Promise<Socket> {
  const { hostname, port } = new URL(origin);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** A hand-written WebSocket client that sends the given frames and reads nothing unless asked to. */
export async function openWebSocket(origin: string, path: string, protocol?: string): Promise<Socket> {
  const socket = await openSocket(origin);
  socket.write(
    [
      `GET ${path} HTTP/1.1`,
      `Host: ${new URL(origin).host}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
      ...(protocol === undefined ? [] : [`Sec-WebSocket-Protocol: ${protocol}`]),
      '\r\n',
    ].join('\r\n'),
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!head.toString('latin1').startsWith('HTTP/1.1 101 ')) throw new Error(String(head));
  socket.pause();
  return socket;
}

/** A client's frame. Its mask is zero, so it contains the payload unchanged. */
export function frameOf(payload: string | Uint8Array): Buffer {
  const body = Buffer.from(payload as string);
  const { length } = body;
  const first = typeof payload === 'string' ? FINAL_TEXT : FINAL_BINARY;
  let head: Buffer;
  if (length <= MAX_SHORT) head = Buffer.from([first, MASKED | length]);
  else if (length <= MAX_16_BIT) head = Buffer.from([first, MASKED | 126, length >> 8, length & 0xff]);
  else {
    head = Buffer.alloc(10);
    head[0] = first;
    head[1] = MASKED | 127;
    head.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([head, Buffer.alloc(4), body]);
}

/** Writes the same again and again, as fast as the server takes it, until the connection ends. */
async function pour(socket: Socket, bytes: Buffer): Promise<void> {
  while (socket.writable) {
    if (socket.write(bytes)) await new Promise(resolve => setImmediate(resolve));
    else {
      await new Promise<void>(resolve => {
        const done = () => {
          socket.off('drain', done);
          socket.off('close', done);
          resolve();
        };
        socket.on('drain', done);
        socket.on('close', done);
      });
    }
  }
}

/** The same text so often that it makes about this many bytes. */
function repeated(piece: Buffer, bytes: number): Buffer {
  return Buffer.concat(new Array<Buffer>(Math.max(1, Math.floor(bytes / piece.length))).fill(piece));
}
