import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import t, { type Test } from 'tap';
import { listenLocally, serveHttp } from '../../test/local-server.test-data.ts';
import { HttpError, JsonClient, type JsonClientOptions } from './json-client.ts';

async function serve(
  t: Test,
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
  options: Partial<JsonClientOptions> = {},
): Promise<JsonClient> {
  const { url } = await serveHttp(t, answer);
  const client = new JsonClient({ url: `${url}//`, timeoutMs: 30_000, ...options });
  t.teardown(() => client.close());
  return client;
}

const failure = async (work: Promise<unknown>): Promise<HttpError> => {
  const error = await work.then(
    () => undefined,
    error => error,
  );
  if (!(error instanceof HttpError)) throw new Error(`expected an HttpError, got ${error}`);
  return error;
};

t.test('JSON goes out with the token, and the text of the reply comes back', async t => {
  const echo = (request: IncomingMessage, response: ServerResponse, body: string) => {
    const { method, url, headers } = request;
    response.end(JSON.stringify([method, url, headers['content-type'], headers.authorization, body]));
  };
  const client = await serve(t, echo, { token: 'secret' });
  const posted = await client.send('/a?b=1', { method: 'POST', body: { c: 2 } });
  t.same(JSON.parse(posted), ['POST', '/a?b=1', 'application/json', 'Bearer secret', '{"c":2}']);
  t.same(JSON.parse(await client.send('/a')), ['GET', '/a', null, 'Bearer secret', '']);
});

t.test('a refusal says status, words, the wait requested, and whether it may pass', async t => {
  const client = await serve(t, ({ url }, response) => {
    response.writeHead(Number(url!.slice(1).split('?')[0]), { 'retry-after': '2' }).end('x'.repeat(5000));
  });
  const busy = await failure(client.send('/503?key=secret'));
  t.match(busy, { status: 503, retryAfterMs: 2000, passing: true });
  t.equal(busy.text.length, 5000);
  t.equal(busy.message, `${client.url}/503: status 503: ${'x'.repeat(300)}`, 'without the query');
  for (const status of [408, 409, 425, 429, 500, 502, 504]) {
    t.equal((await failure(client.send(`/${status}`))).passing, true, `${status}`);
  }
  for (const status of [302, 400, 401, 403, 404, 413, 422, 501]) {
    t.equal((await failure(client.send(`/${status}`))).passing, false, `${status}`);
  }
});

t.test('silence, broken connections and replies without end are distinguished', async t => {
  const silent = await serve(t, () => undefined, { timeoutMs: 300 });
  t.match(await failure(silent.send('/')), {
    message: /no answer within 0\.3 s$/,
    passing: true,
    status: undefined,
  });
  const broken = await serve(t, (_, response) => void response.destroy());
  t.match(await failure(broken.send('/')), { message: /no connection \(.+\)$/, passing: true });
  const cut = await serve(t, (_, response) => {
    response.writeHead(200, { 'content-length': '100' }).write('{');
    setImmediate(() => response.destroy());
  });
  t.match(await failure(cut.send('/')), { message: /no connection \(.+\)$/, passing: true });
  const endless = (_: IncomingMessage, response: ServerResponse): void => {
    const timer = setInterval(() => response.write('x'.repeat(10_000)), 1);
    response.once('close', () => clearInterval(timer));
  };
  const drops = (_: IncomingMessage, response: ServerResponse): void => {
    const timer = setInterval(() => response.write('x'), 10);
    response.once('close', () => clearInterval(timer));
  };
  const slow = await serve(t, drops, { timeoutMs: 300 });
  t.match(await failure(slow.send('/')), { message: /no answer within 0\.3 s$/, passing: true });
  const interim = await serve(t, (_, response) => {
    const timer = setInterval(() => response.writeProcessing(), 1);
    response.once('close', () => clearInterval(timer));
  });
  t.match(await failure(interim.send('/')), { message: /interim replies without end/ });
  const large = await serve(t, endless, { maxBytes: 50_000 });
  t.match(await failure(large.send('/')), { message: /larger than 50000 bytes$/, passing: false });
  const refusing = await serve(
    t,
    (_, response) => {
      response.writeHead(500);
      endless(_, response);
    },
    { maxBytes: 50_000 },
  );
  t.match(await failure(refusing.send('/')), { message: /larger than 50000 bytes$/ });
});

t.test(
  'a server that takes connections and never speaks TLS is given up like one that is silent',
  async t => {
    const { port } = await listenLocally(t, createServer());
    const url = `https://127.0.0.1:${port}`;
    const client = new JsonClient({ url, timeoutMs: 300 });
    t.teardown(() => client.close());
    t.match(await failure(client.send('/')), {
      message: /no connection \(Connect Timeout Error .*timeout: 300ms/,
      passing: true,
    });
    const patient = new JsonClient({ url, timeoutMs: 600_000 });
    t.teardown(() => patient.close());
    const controller = new AbortController();
    const asked = patient.send('/', { signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 10);
    await t.rejects(asked, { message: 'enough' });
  },
);

t.test('an aborted request throws the reason of its signal', async t => {
  const client = await serve(t, () => undefined);
  const controller = new AbortController();
  const asked = client.send('/', { signal: controller.signal });
  setTimeout(() => controller.abort(new Error('enough')), 10);
  await t.rejects(asked, { message: 'enough' });
});
