import { EventEmitter } from 'node:events';
import { createServer, IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { FairScheduler } from '../../scheduling/fair-scheduler.ts';
import { PacedRequests } from './paced-requests.ts';

const CONNECTIONS = 5;
/** More than a connection may have waiting. */
const REQUESTS = 100;

class Reply extends EventEmitter {
  writableFinished = false;
  readonly destroyed = false;

  leave(): void {
    this.writableFinished = true;
    this.emit('finish');
  }
}

t.test('connections that were stopped are read again one in each round of the event loop', async t => {
  const open: Reply[] = [];
  const server = createServer((_request, response) => open.push(response as unknown as Reply));
  t.teardown(() => server.emit('close'));
  new PacedRequests(new FairScheduler(), () => undefined).pace(server);
  const sockets = Array.from({ length: CONNECTIONS }, () => {
    const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() }) as Socket;
    for (let n = 0; n < REQUESTS; n++) {
      server.emit('request', new IncomingMessage(socket), new Reply() as unknown as ServerResponse);
    }
    return socket;
  });
  const isRead = () => sockets.filter(socket => !socket.isPaused()).length;
  t.equal(isRead(), 0, 'all are stopped');
  // Each reply that leaves lets the next request of its connection in.
  let handled = 0;
  let mostAtOnce = 0;
  while (handled < CONNECTIONS * REQUESTS) {
    if (open.length === 0) await nextTurn();
    const before = isRead();
    for (const reply of open.splice(0)) {
      reply.leave();
      handled++;
    }
    mostAtOnce = Math.max(mostAtOnce, isRead() - before);
  }
  t.ok(mostAtOnce <= 1, `${mostAtOnce} in one turn`);
  const rounds: number[] = [];
  for (let round = 0; round < 2 * CONNECTIONS; round++) {
    rounds.push(isRead());
    await nextTurn();
  }
  t.equal(isRead(), CONNECTIONS, 'in the end all are read');
  t.ok(
    rounds.every((count, i) => i === 0 || count - rounds[i - 1] <= 1),
    `read after each round: ${rounds}`,
  );
});

t.test('clients take turns in being read again, however many connections one of them has', async t => {
  const open: Reply[] = [];
  const server = createServer((_request, response) => open.push(response as unknown as Reply));
  t.teardown(() => server.emit('close'));
  // Its clock stands still: no request waits for a turn.
  const scheduler = new FairScheduler({ now: () => 0, afterOthers: callback => void setImmediate(callback) });
  new PacedRequests(scheduler, ({ headers }) => headers.authorization).pace(server);
  const stopped = (client: string) => {
    const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() }) as Socket;
    for (let n = 0; n < REQUESTS; n++) {
      const request = new IncomingMessage(socket);
      request.headers.authorization = client;
      server.emit('request', request, new Reply() as unknown as ServerResponse);
    }
    return socket;
  };
  const many = Array.from({ length: 50 }, () => stopped('many'));
  const one = stopped('one');
  const isRead = (socket: Socket) => !socket.isPaused();
  t.notOk([...many, one].some(isRead), 'all are stopped');
  while (open.length > 0) for (const reply of open.splice(0)) reply.leave();
  while (!isRead(one)) await nextTurn();
  t.ok(many.filter(isRead).length <= 2, `after ${many.filter(isRead).length} connections of the other`);
  while (!many.every(isRead)) await nextTurn();
});
