/** Watches a server with several sockets: `node watchers.ts HOST COUNT`; says to its parent when all watch. */
import { once } from 'node:events';
import { WebSocket } from 'ws';

const [host, count] = process.argv.slice(2);
await Promise.all(
  Array.from({ length: Number(count) }, async () => {
    const socket = new WebSocket(`ws://${host}/v1/ws`);
    await once(socket, 'open');
    socket.send('{"id":1,"op":"watch"}');
    await once(socket, 'message');
  }),
);
process.send?.('watching');
