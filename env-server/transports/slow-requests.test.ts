import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { until } from '../../test/until.test-data.ts';
import { hostOf, listening } from '../../test/wire.test-data.ts';

const CLIENTS = 50;
/** Far less than a server gives a request, so that the test is short. */
const TIMEOUT_MS = 500;

t.test('a request that does not end is cut, and delays nobody', async t => {
  const app = await listening(t);
  t.ok(app.server.server.requestTimeout > 0, 'requests have a time limit');
  Object.assign(app.server.server, { requestTimeout: TIMEOUT_MS, headersTimeout: TIMEOUT_MS });
  const [host, port] = hostOf(app).split(':');
  const head = `POST /v1/batch HTTP/1.1\r\nHost: ${hostOf(app)}\r\n`;
  const body = 'Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n{"items":';
  // Counted as they come: the first may be cut before the last is there.
  let connected = 0;
  app.server.server.on('connection', () => connected++);
  const sockets = Array.from({ length: CLIENTS }, () => connect(Number(port), host));
  const endings = sockets.map(async (socket, i) => {
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    socket.write(head + (i % 2 === 0 ? body : ''));
    return text(socket);
  });
  const connections = () =>
    new Promise<number>(resolve => app.server.server.getConnections((_, count) => resolve(count)));
  await until(() => connected >= CLIENTS);
  t.equal((await app.ask('GET', '/livez')).status, 200, 'others are answered meanwhile');
  for (const reply of await Promise.all(endings)) {
    t.match(reply, /^HTTP\/1\.1 400 /);
    t.match(reply, /"detail":"the request was not there whole within/);
  }
  await until(async () => (await connections()) <= 1);
});
