import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { TestApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import { connectionsByFiles } from './auth.ts';

async function open(t: Test, app: TestApp, localAddress: string): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port: Number(hostOf(app).split(':')[1]), localAddress });
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  socket.resume();
  await once(socket, 'connect');
  return socket;
}

const ATTACKER = '127.0.0.2';

t.test(
  'endless idle connections give way to others, the oldest of those without a request first',
  async t => {
    const app = await listening(t, { maxConnections: 8 });
    const busy = await dial(t, app, '/v1/ws');
    const idle: Socket[] = [];
    for (let i = 0; i < 20; i++) idle.push(await open(t, app, ATTACKER));
    await until(() => idle.filter(({ destroyed }) => destroyed).length >= 13);
    t.ok(idle[0].destroyed);
    t.notOk(idle[19].destroyed);
    t.equal((await app.ask('GET', '/livez')).status, 200);
    busy.send({ id: 1, op: 'ping' });
    t.match(await busy.next(), { id: 1, ok: true });
  },
);

t.test('when all connections are in use, the address with the most is refused', async t => {
  const app = await listening(t, { maxConnections: 4 });
  const port = Number(hostOf(app).split(':')[1]);
  const sockets: Socket[] = [];
  let begun = 0;
  app.server.server.prependListener('request', () => begun++);
  for (let i = 0; i < 4; i++) {
    const socket = await open(t, app, ATTACKER);
    // Its request is in progress, as its body does not come.
    socket.write(
      `POST /v1/batch HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n`,
    );
    sockets.push(socket);
  }
  await until(() => begun === 4);
  // The one that asks takes the place of the oldest.
  t.equal((await app.ask('GET', '/livez')).status, 200);
  await until(() => sockets[0].destroyed);
  const late = await open(t, app, ATTACKER);
  await until(() => late.destroyed || sockets.slice(1).some(({ destroyed }) => destroyed));
  t.ok(late.destroyed, 'the newcomer of the same address is refused');
});

t.test('the limit leaves files for everything else', t => {
  const limits = (files: string) => () =>
    `Limit  Soft Limit  Hard Limit  Units\nMax open files   ${files}   files\n`;
  t.equal(connectionsByFiles(limits('1024       4096')), 768);
  t.equal(connectionsByFiles(limits('400        400')), 200);
  t.equal(connectionsByFiles(limits('unlimited  unlimited')), Number.POSITIVE_INFINITY);
  t.equal(
    connectionsByFiles(() => {
      throw new Error('not Linux');
    }),
    Number.POSITIVE_INFINITY,
  );
  t.end();
});
