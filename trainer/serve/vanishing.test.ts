import { connect } from 'node:net';
import t from 'tap';
import { goldenFolder, startServer, type TestServer } from './serve.test-data.ts';

const CLIENTS = 1000;
const AT_ONCE = 50;
const CHOICES = 32;

/** The number of a gauge of /metrics. */
async function gauge({ request }: TestServer, name: string): Promise<number> {
  const { body } = await request('GET', '/metrics');
  return Number(new RegExp(`^${name} (.+)$`, 'm').exec(body)![1]);
}

async function settled(server: TestServer): Promise<void> {
  while ((await gauge(server, 'ragen_serve_open_responses')) > 0) await new Promise(setImmediate);
}

/** Opens a stream by hand and breaks the connection when the first bytes have come, or at once. */
function vanish(url: string, streamed: boolean, wait: boolean): Promise<void> {
  const { port } = new URL(url);
  const body = JSON.stringify({ prompt: [3, 4, 5], max_tokens: 100, ignore_eos: true, stream: streamed });
  return new Promise(resolve => {
    const socket = connect(Number(port), '127.0.0.1', () => {
      socket.write(
        `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
      if (!wait) setImmediate(() => socket.resetAndDestroy());
    });
    if (wait) socket.once('data', () => socket.resetAndDestroy());
    socket.on('error', () => {});
    socket.once('close', () => resolve());
  });
}

t.test('a thousand clients that vanish leave no slot behind', async t => {
  const server = await startServer(t, goldenFolder('qwen2-tiny'), { maxStreams: AT_ONCE });
  for (let begun = 0; begun < CLIENTS; begun += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => vanish(server.url, i % 5 > 0, i % 5 > 1)));
  }
  await settled(server);
  t.equal(server.models.base.open, 0);
  // All places are free again, and the server answers as before.
  const { status, body } = await server.request('POST', '/v1/completions', {
    prompt: [3],
    n: AT_ONCE,
    max_tokens: 4,
    ignore_eos: true,
  });
  t.equal(status, 200);
  t.equal(body.choices.length, AT_ONCE);
});

t.test('a client that goes away ends its request within a token', async t => {
  const server = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1 } });
  const gone = new AbortController();
  const stream = await server.client.completions.create(
    // An early end of the text would be the end of the request; one choice is sampled before its first event is read.
    { model: 'base', prompt: [3, 4], n: CHOICES, max_tokens: 400, stream: true, ...{ ignore_eos: true } },
    { signal: gone.signal },
  );
  for await (const _ of stream) break;
  gone.abort();
  await settled(server);
  const { body } = await server.request('GET', '/metrics');
  t.match(body, /requests_total\{.*outcome="aborted".*\} 1/);
  const [, sampled] = /completion_tokens_total\{.*\} (\d+)/.exec(body)!;
  t.ok(Number(sampled) < 400 * CHOICES, `${sampled} tokens were sampled`);
});

t.test('a client that reads nothing delays no others, and gets everything in the end', async t => {
  const server = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1 } });
  const body = JSON.stringify({
    prompt: [3, 4],
    max_tokens: 200,
    ignore_eos: true,
    stream: true,
    logprobs: 20,
    return_token_ids: true,
  });
  const { port } = new URL(server.url);
  const socket = connect(Number(port), '127.0.0.1');
  socket.pause();
  socket.write(
    `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  const others = await Promise.all(
    Array.from({ length: 8 }, () =>
      server.request('POST', '/v1/completions', { prompt: [3], max_tokens: 20 }),
    ),
  );
  t.ok(others.every(({ status }) => status === 200));
  let text = '';
  socket.setEncoding('utf8').on('data', piece => {
    text += piece;
  });
  socket.resume();
  await new Promise(resolve => socket.once('close', resolve));
  const ids = [...text.matchAll(/"token_ids":\[([\d,]*)\]/g)].flatMap(([, list]) =>
    list.split(',').filter(Boolean),
  );
  t.equal(ids.length, 200);
  t.match(text, /\[DONE\]/);
});
