import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import Fastify from 'fastify';
import t, { type Test } from 'tap';
import { bytesOf, joinChunks, textOf } from './chunks.ts';

const CHUNKS = 16_000;
/** Kept alone, each of the chunks takes more than 100 bytes. */
const MAX_GROWTH_BYTES = 800_000;

/** Heap in use, without garbage. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as NodeJS.GCFunction)();
  return process.memoryUsage().heapUsed;
}

t.test('a stream of single bytes takes the memory of its bytes', async t => {
  let growth = 0;
  const before = heapBytes();
  const stream = Readable.from(
    (function* () {
      for (let i = 0; i < CHUNKS; i++) yield Buffer.from(String(i % 10));
      growth = heapBytes() - before;
    })(),
  );
  const bytes = await bytesOf(stream);
  t.equal(bytes.toString(), '0123456789'.repeat(CHUNKS / 10));
  t.ok(growth < MAX_GROWTH_BYTES, `the heap grew by ${growth} bytes`);
});

t.test('a stream that is too long, too slow to read or breaks is refused', async t => {
  await t.rejects(
    bytesOf(Readable.from([Buffer.alloc(3), Buffer.alloc(3)]), { maxBytes: 5 }),
    /more than 5 bytes/,
  );
  await t.rejects(
    bytesOf(Readable.from(Array(20_000).fill(Buffer.alloc(31)))),
    /more than 16384 chunks of less than 32/,
  );
  t.equal((await bytesOf(Readable.from(Array(20_000).fill(Buffer.alloc(32))))).length, 640_000);
  await t.rejects(bytesOf(new Readable({ read: () => undefined }), { maxMs: 20 }), {
    message: 'the reply was not whole after 0.02 s',
  });
  const breaking = new Readable({ read: () => undefined });
  breaking.push('a');
  const read = textOf(breaking);
  breaking.destroy(new Error('gone'));
  await t.rejects(read, /gone/);
  t.equal(await textOf(Readable.from([Buffer.from('\ufeffä')])), 'ä', 'text has no byte order mark');
});

/** Sends a JSON string, each byte in a chunk. */
async function post(t: Test, chunks: number) {
  const app = Fastify();
  t.teardown(() => app.close());
  joinChunks(app);
  app.post('/', async ({ body }) => (body as string).length);
  await app.listen({ port: 0 });
  await app.inject({
    method: 'POST',
    url: '/',
    payload: '"a"',
    headers: { 'content-type': 'application/json' },
  });
  const before = heapBytes();
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  let reply = '';
  socket.on('data', data => (reply += data));
  socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n');
  socket.write(`transfer-encoding: chunked\r\n\r\n1\r\n"\r\n${'1\r\na\r\n'.repeat(chunks)}`);
  const [request] = await once(app.server, 'request');
  const written = socket.bytesWritten;
  while (request.socket.bytesRead < written && reply === '') await delay(1);
  return { socket, growth: heapBytes() - before, reply: () => reply };
}

t.test('a chunked body of single bytes takes the memory of its bytes', async t => {
  const { socket, growth, reply } = await post(t, CHUNKS);
  t.ok(growth < 2 * MAX_GROWTH_BYTES, `the heap grew by ${growth} bytes`);
  socket.write('1\r\n"\r\n0\r\n\r\n');
  while (reply() === '') await delay(1);
  t.match(reply(), new RegExp(`200 OK[\\s\\S]*\\b${CHUNKS}$`));
});

t.test('a chunked body of too many small chunks is refused, and its connection ends', async t => {
  const { socket, reply } = await post(t, 2 * CHUNKS);
  if (!socket.closed) await once(socket, 'close');
  t.match(
    reply(),
    /400 Bad Request[\s\S]*connection: close[\s\S]*more than 16384 chunks of less than 32 bytes/,
  );
});
