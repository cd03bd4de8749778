import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { serveHttp } from '../../test/local-server.test-data.ts';
import { dashboard } from '../commands/dashboard.ts';
import { createDashboard } from './server.ts';

/** Reply of the dashboard about a session at a server that replies like this. */
async function proxied(
  t: Test,
  answer: (reply: ServerResponse) => void,
  payload: object | string = {},
  headers: { [name: string]: string } = {},
) {
  const { url: address } = await serveHttp(t, (_, reply) => answer(reply));
  const app = await createDashboard({
    runs: t.testdir(),
    server: address,
    host: '127.0.0.1',
    allowedHosts: '',
  });
  t.teardown(() => app.close());
  const reply = await app.inject({
    method: 'POST',
    url: '/server/v1/sessions',
    payload,
    headers: { host: '127.0.0.1', ...headers },
  });
  return { status: reply.statusCode, body: reply.json() };
}

t.test('a reply of the environment server is handed on with its status', async t => {
  const reply = await proxied(t, reply => {
    reply.writeHead(422, { 'content-type': 'application/problem+json' }).end('{"detail":"no"}');
  });
  t.same(reply, { status: 422, body: { detail: 'no' } });
});

t.test('a reply without end is given up at a bound in bytes', async t => {
  const { status, body } = await proxied(t, reply => {
    const send = () => {
      while (!reply.destroyed && reply.write(Buffer.alloc(2 ** 16, ' ')));
    };
    reply.on('drain', send);
    send();
  });
  t.equal(status, 502);
  t.match(body.detail, /sends a reply of more than 16777216 bytes$/);
});

t.test('a reply of a byte now and then is given up at a bound in time', async t => {
  const { timeout } = AbortSignal;
  t.intercept(AbortSignal, 'timeout', { value: (ms: number) => timeout.call(AbortSignal, ms / 200) });
  const { status, body } = await proxied(t, reply => {
    const timer = setInterval(() => reply.write(' '), 20);
    reply.on('close', () => clearInterval(timer));
  });
  t.equal(status, 502);
  t.match(body.detail, /sends no whole reply within 60 s$/);
});

t.test('what a page of others can send without asking first does not reach the server', async t => {
  for (const [payload, type] of [
    ['{"env_id":"FrozenLake-v0"}', 'text/plain'],
    ['{"env_id":"FrozenLake-v0"}', 'text/plain; application/json'],
    ['env_id=FrozenLake-v0', 'application/x-www-form-urlencoded'],
    ['', ''],
  ]) {
    const { status } = await proxied(
      t,
      reply => {
        t.fail(`${type} is forwarded`);
        reply.end('{}');
      },
      payload,
      type === '' ? {} : { 'content-type': type },
    );
    t.equal(status, 415, type);
  }
});

t.test('an address with a password is refused without it', async t => {
  const options = { server: 'http://ann:secret@host', host: '127.0.0.1', allowedHosts: '' };
  const message =
    '--server has a user name or password, which is not sent: give a token by the variable RAGEN_TOKEN';
  await t.rejects(dashboard(t.testdir(), options), { message });
});
