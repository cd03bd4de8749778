import { once } from 'node:events';
import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import {
  brotliCompressSync,
  brotliDecompressSync,
  deflateSync,
  gunzip,
  gunzipSync,
  gzipSync,
} from 'node:zlib';
import Fastify from 'fastify';
import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import type { Lane, Task } from '../../scheduling/fair-scheduler.ts';
import { readJson } from './content.ts';

interface Got {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** A request with a body of bytes, and its reply as it came. */
async function exchange(
  app: Parameters<typeof hostOf>[0],
  method: string,
  path: string,
  headers: { readonly [name: string]: string },
  body?: Buffer,
): Promise<Got> {
  const sent = request(`http://${hostOf(app)}${path}`, { method, headers });
  sent.end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode ?? 0, headers: response.headers, body: await buffer(response) };
}

const JSON_BODY = { 'content-type': 'application/json' };

t.test('compressed bodies are read', async t => {
  const app = await listening(t);
  const id = await app.open({ config: { goal: 9 } });
  const add = Buffer.from('{"action":"add"}');
  const cases = {
    gzip: gzipSync(add),
    br: brotliCompressSync(add),
    deflate: deflateSync(add),
    GZIP: gzipSync(add),
    identity: add,
  };
  let step = 0;
  for (const [encoding, body] of Object.entries(cases)) {
    const headers = { ...JSON_BODY, 'content-encoding': encoding };
    const reply = await exchange(app, 'POST', `/v1/sessions/${id}/step`, headers, body);
    t.equal(reply.status, 200, encoding);
    t.equal(JSON.parse(reply.body.toString()).step, ++step);
  }
  const items = JSON.stringify({ items: [{ op: 'get', session_id: id }] });
  const headers = { ...JSON_BODY, 'content-encoding': 'gzip', 'transfer-encoding': 'chunked' };
  t.equal((await exchange(app, 'POST', '/v1/batch', headers, gzipSync(items))).status, 200);
});

t.test('a body that is not UTF-8 is refused, and no letter of it replaced', async t => {
  const app = await listening(t);
  const id = await app.open();
  for (const encoding of ['latin1', 'utf16le'] as const) {
    const body = Buffer.from('\ufeff{"action":"größer"}'.slice(encoding === 'latin1' ? 1 : 0), encoding);
    const reply = await exchange(app, 'POST', `/v1/sessions/${id}/step`, JSON_BODY, body);
    const { code, detail } = JSON.parse(reply.body.toString());
    t.same([reply.status, code, detail], [400, 'bad_json', 'the body is not UTF-8, which JSON is sent in']);
  }
});

t.test('no more bodies are decompressed than are parsed', async t => {
  const app = Fastify();
  t.teardown(() => app.close());
  const turns: Task[] = [];
  const lane = { client: 'a', run: (task: Task) => turns.push(task) } as unknown as Lane;
  readJson(app, 1000, { laneOf: () => lane });
  app.post('/', async ({ body }) => body);
  const add = Buffer.from('{"action":"add"}');
  const headers = { ...JSON_BODY, 'content-encoding': 'gzip' };
  const count = 5;
  const replies = Array.from({ length: count }, () =>
    app.inject({ method: 'POST', url: '/', headers, payload: gzipSync(add) }),
  );
  for (let parsed = 0; parsed < count; parsed++) {
    await until(() => turns.length >= Math.min(2, count - parsed));
    // Those that are decompressed without need would be there before this.
    for (let i = 0; i < count; i++) await promisify(gunzip)(gzipSync(add));
    t.equal(turns.length, Math.min(2, count - parsed));
    turns.shift()!();
  }
  for (const reply of await Promise.all(replies)) t.equal(reply.body, String(add));
});

t.test('other encodings are refused with those that are taken', async t => {
  const app = await listening(t);
  for (const encoding of ['zstd', 'compress', 'gzip, gzip', 'toString', '']) {
    const headers = { ...JSON_BODY, 'content-encoding': encoding };
    const reply = await exchange(app, 'POST', '/v1/sessions', headers, Buffer.from('{}'));
    t.equal(reply.status, 415, encoding);
    t.match(JSON.parse(reply.body.toString()), {
      code: 'unsupported_media_type',
      detail: /content-encoding is ".*"; .*gzip, br, deflate/,
    });
  }
});

t.test('a body that does not match its content encoding is malformed', async t => {
  const app = await listening(t);
  const whole = gzipSync('{"env_id":"test/Counter-v0"}');
  for (const body of [
    Buffer.from('{}'),
    whole.subarray(0, -9),
    Buffer.concat([whole.subarray(0, 12), Buffer.alloc(30, 7)]),
  ]) {
    const headers = { ...JSON_BODY, 'content-encoding': 'gzip' };
    const reply = await exchange(app, 'POST', '/v1/sessions', headers, body);
    t.equal(reply.status, 400);
    t.match(JSON.parse(reply.body.toString()), {
      code: 'bad_request',
      detail: /the body is not gzip as the header/,
    });
  }
  const headers = { ...JSON_BODY, 'content-encoding': 'gzip' };
  const reply = await exchange(app, 'POST', '/v1/sessions', headers, gzipSync('{"env_id":'));
  t.equal(JSON.parse(reply.body.toString()).code, 'bad_json');
});

t.test('a bomb is refused at the limit, before it is all there', async t => {
  const bodyLimitBytes = 100_000;
  const app = await listening(t, { bodyLimitBytes });
  const zeros = Buffer.alloc(90_000_000, ' ');
  for (const [encoding, body] of [
    ['gzip', gzipSync(zeros)],
    ['br', brotliCompressSync(zeros)],
    ['deflate', deflateSync(zeros)],
  ] as const) {
    t.ok(body.length < bodyLimitBytes, `${encoding}: ${body.length} bytes`);
    const before = process.resourceUsage().userCPUTime;
    const headers = { ...JSON_BODY, 'content-encoding': encoding };
    const reply = await exchange(app, 'POST', '/v1/sessions', headers, body);
    t.equal(reply.status, 413, encoding);
    t.match(JSON.parse(reply.body.toString()), {
      code: 'body_too_large',
      detail: /larger than 100000 bytes when/,
    });
    t.comment(`${encoding}: ${process.resourceUsage().userCPUTime - before} µs`);
  }
  const fits = gzipSync(JSON.stringify({ env_id: 'test/Counter-v0' }).padEnd(bodyLimitBytes, ' '));
  t.equal(
    (await exchange(app, 'POST', '/v1/sessions', { ...JSON_BODY, 'content-encoding': 'gzip' }, fits)).status,
    201,
  );
});

t.test('large replies are compressed for those who take that, small ones and steps never', async t => {
  const app = await listening(t);
  const plain = await exchange(app, 'GET', '/openapi.json', {});
  t.notOk(plain.headers['content-encoding']);
  t.match(plain.headers.vary ?? '', /^$|accept-encoding/i);
  for (const [accept, encoding, decode] of [
    ['gzip', 'gzip', gunzipSync],
    ['gzip, deflate, br', 'br', brotliDecompressSync],
  ] as const) {
    const reply = await exchange(app, 'GET', '/openapi.json', { 'accept-encoding': accept });
    t.equal(reply.headers['content-encoding'], encoding);
    t.match(reply.headers.vary, /accept-encoding/i);
    t.same(decode(reply.body), plain.body);
    t.ok(reply.body.length < plain.body.length / 3);
  }
  const zip = { 'accept-encoding': 'gzip' };
  const id = await app.open();
  t.notOk((await exchange(app, 'GET', `/v1/sessions/${id}`, zip)).headers['content-encoding']);
  const step = await exchange(
    app,
    'POST',
    `/v1/sessions/${id}/step?`,
    { ...zip, ...JSON_BODY },
    Buffer.from('{"action":"add"}'),
  );
  t.notOk(step.headers['content-encoding']);
  const items = Array.from({ length: 200 }, () => ({ op: 'get', session_id: id }));
  const batch = await exchange(
    app,
    'POST',
    '/v1/batch',
    { ...zip, ...JSON_BODY },
    Buffer.from(JSON.stringify({ items })),
  );
  t.notOk(batch.headers['content-encoding'], 'a plain request');
  t.equal(Number(batch.headers['content-length']), batch.body.length);
});

t.test('a client that has a reply already gets 304', async t => {
  const app = await listening(t);
  for (const path of [
    '/openapi.json',
    '/v1/envs',
    '/v1/envs/test%2FCounter-v0',
    '/docs/',
    '/docs/json',
    '/assets/bundles/site/reference/main.ts',
    '/',
    '/assets/site/playground/playground.css',
  ]) {
    const first = await exchange(app, 'GET', path, { 'accept-encoding': 'gzip' });
    t.equal(first.status, 200, path);
    const { etag, 'cache-control': keeping } = first.headers;
    t.match(etag, /^(W\/)?".+"$/, path);
    t.match(keeping, /no-cache|max-age=0/, path);
    const again = await exchange(app, 'GET', path, { 'if-none-match': String(etag) });
    t.equal(again.status, 304, path);
    t.equal(again.body.length, 0);
    t.equal((await exchange(app, 'GET', path, { 'if-none-match': '"other"' })).status, 200, path);
  }
  const before = await exchange(app, 'GET', '/v1/envs/test%2FCounter-v0', {});
  const other = await exchange(app, 'GET', '/v1/envs/test%2FSlow-v0', {
    'if-none-match': String(before.headers.etag),
  });
  t.equal(other.status, 200, 'the tag of another');
  const unknown = await exchange(app, 'GET', '/v1/envs/None-v0', {});
  t.equal(unknown.headers['cache-control'], 'no-store');
});

t.test('JSON ends with a line break over HTTP, and not in frames', async t => {
  const app = await listening(t);
  const { ask } = app;
  const id = await app.open();
  for (const [method, path, body] of [
    ['GET', '/livez', undefined],
    ['GET', '/openapi.json', undefined],
    ['GET', '/v1/envs', undefined],
    ['GET', `/v1/sessions/${id}`, undefined],
    ['GET', '/nowhere', undefined],
    ['GET', '/v1/envs/%ff', undefined],
    ['POST', `/v1/sessions/${id}/step`, { action: 'add' }],
    ['POST', `/v1/sessions/${id}/step?`, { action: 'add' }],
    ['POST', `/v1/sessions/${id}/step`, { action: {} }],
    ['POST', '/v1/batch', { items: [{ op: 'get', session_id: id }] }],
    ['POST', '/v1/batch?', { items: [{ op: 'get', session_id: id }] }],
    ['POST', '/compat/openenv/test%2FCounter-v0/reset', {}],
    ['POST', '/compat/gym/v1/envs', {}],
    ['GET', `/v1/sessions/${id}/trajectory`, undefined],
  ] as const) {
    const { text, headers } = await ask(method, path, body);
    t.match(text, /[^\n]\n$/, `${method} ${path}`);
    t.equal(Number(headers['content-length']), Buffer.byteLength(text), path);
  }
  t.equal((await ask('DELETE', `/v1/sessions/${id}`)).text, '');
  const { socket, send } = await dial(t, app, '/v1/ws');
  send({ id: 1, op: 'ping' });
  const [frame] = await once(socket, 'message');
  t.equal(String(frame), '{"id":1,"ok":true,"result":{"pong":true}}');
});

t.test('?pretty indents, at every route', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  for (const [method, path, body] of [
    ['GET', '/livez?pretty', undefined],
    ['GET', `/v1/sessions/${id}?pretty`, undefined],
    ['GET', '/v1/envs?pretty=true&tag=test', undefined],
    ['POST', `/v1/sessions/${id}/step?pretty`, { action: 'add' }],
    ['POST', '/v1/batch?pretty', { items: [{ op: 'get', session_id: id }] }],
    ['GET', '/nowhere?pretty', undefined],
    ['POST', `/v1/sessions/${id}/step?pretty`, {}],
  ] as const) {
    const reply = await ask(method, path, body);
    t.equal(reply.text, `${JSON.stringify(reply.body, null, 2)}\n`, path);
    t.equal(Number(reply.headers['content-length']), Buffer.byteLength(reply.text), path);
  }
  const plain = await ask('GET', `/v1/sessions/${id}?pretty=false`);
  t.equal(plain.text, `${JSON.stringify(plain.body)}\n`);
  isProblem(t, await ask('GET', `/v1/sessions/${id}?prety`), 'invalid_request');
});

t.test('bombs are decompressed two at a time, and not when their client is gone', async t => {
  const app = await listening(t);
  const bomb = gzipSync(Buffer.alloc(20_000_000, ' '));
  const [host, port] = hostOf(app).split(':');
  const head = [
    'POST /v1/sessions HTTP/1.1',
    `Host: ${hostOf(app)}`,
    'Content-Type: application/json',
    'Content-Encoding: gzip',
    `Content-Length: ${bomb.length}`,
    '\r\n',
  ].join('\r\n');
  const sent = Buffer.concat([Buffer.from(head), bomb]);
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const look = setInterval(() => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }, 2);
  t.teardown(() => clearInterval(look));
  const left = Array.from({ length: 40 }, async () => {
    const socket = connect({ host, port: Number(port) });
    await new Promise(resolve => socket.write(sent, resolve));
    socket.destroy();
    await once(socket, 'close');
  });
  await Promise.all(left);
  const { status } = await app.ask('GET', '/livez');
  t.equal(status, 200);
  const body = gzipSync(JSON.stringify({ env_id: 'test/Counter-v0' }));
  const asked = await exchange(
    app,
    'POST',
    '/v1/sessions',
    { ...JSON_BODY, 'content-encoding': 'gzip' },
    body,
  );
  t.equal(asked.status, 201, 'others have their turn');
  // The compressed bodies, and what two of them may become.
  t.ok(most < 24_000_000, `at most ${most} bytes more, not 4 MB for each of 40`);
});
