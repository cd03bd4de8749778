import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

/** The least a server can do: a fixed reply over HTTP, an echo over WebSocket. Prints its address. */
const REPLY = JSON.stringify({
  session_id: 'sAAAAAAAAAAAAAAAA',
  episode_id: 'sAAAAAAAAAAAAAAAA.1',
  step: 1,
  observation: 'P___\n____\n____\n___G',
  reward: 0,
  terminated: false,
  truncated: false,
  info: { success: false, action_is_valid: true, action_is_effective: true },
});

const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    if (request.url === '/metrics') {
      const { user, system } = process.cpuUsage();
      response.end(`process_cpu_seconds_total ${(user + system) / 1e6}\n`);
      return;
    }
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(REPLY),
    });
    response.end(REPLY);
  });
});
const sockets = new WebSocketServer({ server, path: '/v1/ws' });
sockets.on('connection', socket => {
  socket.on('message', data => socket.send(data, { binary: false }));
});
server.listen(0, '127.0.0.1', () => {
  console.log(`bare server listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
