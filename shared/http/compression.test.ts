import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import Fastify from 'fastify';
import t from 'tap';
import { compressReplies } from './compression.ts';

const TEXT = 'a b c '.repeat(2000);
const PLAIN = 'text/plain; charset=utf-8';

function served(content: () => unknown, headers: { readonly [name: string]: string } = {}, config = {}) {
  const app = Fastify();
  compressReplies(app);
  app.get('/', { config }, (_request, reply) =>
    reply.headers({ 'content-type': PLAIN, ...headers }).send(content()),
  );
  return app;
}

t.test('an encoding is chosen as the client says', async t => {
  const app = served(() => TEXT);
  for (const [accept, encoding] of [
    ['gzip', 'gzip'],
    ['GZIP', 'gzip'],
    ['br;q=0.5, gzip', 'gzip'],
    ['gzip, br', 'br'],
    ['*', 'br'],
    ['deflate', undefined],
    ['identity', undefined],
    ['gzip;q=0', undefined],
    ['', undefined],
    [', ;q=', undefined],
  ] as const) {
    const { headers, rawPayload } = await app.inject({ url: '/', headers: { 'accept-encoding': accept } });
    t.equal(headers['content-encoding'], encoding, accept);
    t.equal(headers.vary, encoding && 'accept-encoding');
    t.equal(Number(headers['content-length']), rawPayload.length);
    const decode = { br: brotliDecompressSync, gzip: gunzipSync, none: (same: Buffer) => same };
    t.equal(decode[encoding ?? 'none'](rawPayload).toString(), TEXT);
  }
  const { headers } = await app.inject({ url: '/', method: 'HEAD', headers: { 'accept-encoding': 'br' } });
  t.notOk(headers['content-encoding'], 'a reply without content');
});

t.test('some replies stay as they are', async t => {
  for (const [name, app] of Object.entries({
    small: served(() => 'a'.repeat(8191)),
    'small script': served(() => 'a'.repeat(1023), { 'content-type': 'text/javascript' }),
    picture: served(() => TEXT, { 'content-type': 'image/png' }),
    events: served(() => Readable.from([TEXT]), { 'content-type': 'text/event-stream' }),
    packed: served(() => Buffer.from(TEXT), { 'content-encoding': 'zstd' }),
    range: served(() => TEXT, { 'content-range': 'bytes 0-11999/20000' }),
    frequent: served(() => TEXT, {}, { isUncompressed: true }),
  })) {
    const { headers, payload } = await app.inject({ url: '/', headers: { 'accept-encoding': 'br' } });
    t.match(headers['content-encoding'] ?? '', /^(zstd)?$/, name);
    t.ok(payload.length >= 1023, name);
  }
  for (const type of ['text/javascript; charset=utf-8', 'text/css', 'text/html', 'image/svg+xml']) {
    const app = served(() => 'a'.repeat(1024), { 'content-type': type });
    const { headers } = await app.inject({ url: '/', headers: { 'accept-encoding': 'br' } });
    t.equal(headers['content-encoding'], 'br', `files of pages come packed: ${type}`);
  }
  const both = served(() => TEXT, { vary: 'origin' });
  const { headers } = await both.inject({ url: '/', headers: { 'accept-encoding': 'br' } });
  t.equal(headers.vary, 'origin, accept-encoding');
});

t.test('a stream is compressed as it comes, and ends where it breaks or its client leaves', async t => {
  const whole = served(() => Readable.from([TEXT, TEXT]));
  const { headers, rawPayload } = await whole.inject({ url: '/', headers: { 'accept-encoding': 'gzip' } });
  t.equal(headers['content-encoding'], 'gzip');
  t.equal(gunzipSync(rawPayload).toString(), TEXT + TEXT);

  const endless = new PassThrough();
  const app = served(() => endless);
  t.teardown(() => app.close());
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const leave = new AbortController();
  const left = t.rejects(fetch(url, { signal: leave.signal, headers: { 'accept-encoding': 'br' } }));
  // The encoder reads it.
  await once(endless, 'resume');
  leave.abort();
  await t.rejects(once(endless, 'close'), /Premature close/);
  await left;

  const broken = served(() => {
    const stream = new PassThrough();
    stream.write(TEXT);
    setImmediate(() => stream.destroy(new Error('the disk is gone')));
    return stream;
  });
  t.teardown(() => broken.close());
  const address = await broken.listen({ host: '127.0.0.1', port: 0 });
  await t.rejects(fetch(address, { headers: { 'accept-encoding': 'gzip' } }).then(reply => reply.text()));
});
