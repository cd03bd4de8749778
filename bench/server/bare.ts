import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

/**
 * The least work of a server: a fixed reply over HTTP and an echo over WebSocket; with `batches`, both parse a batch
 * and answer every item with the fixed reply, serialized again. Prints its address.
 */
const STEP = {
  session_id: 'sAAAAAAAAAAAAAAAA',
  episode_id: 'sAAAAAAAAAAAAAAAA.1',
  step: 1,
  observation: 'P___\n____\n____\n___G',
  reward: 0,
  terminated: false,
  truncated: false,
  info: { success: false, action_is_valid: true, action_is_effective: true },
};
const REPLY = JSON.stringify(STEP);

/** Answers a batch without having done any of it; the id of a frame is given back. */
function answerBatch(text: string): string {
  const { id, items } = JSON.parse(text) as { id?: number; items: { session_id: string }[] };
  const results = items.map(({ session_id }) => ({ ok: true, result: { ...STEP, session_id } }));
  return JSON.stringify(id === undefined ? { results } : { id, ok: true, result: { results } });
}

const batches = process.argv.includes('batches');
const server = createServer((request, response) => {
  const pieces: Buffer[] = [];
  request.on('data', piece => pieces.push(piece));
  request.on('end', () => {
    if (request.url === '/metrics') {
      const { user, system } = process.cpuUsage();
      const lines = [
        `process_cpu_seconds_total ${(user + system) / 1e6}`,
        `process_cpu_user_seconds_total ${user / 1e6}`,
      ];
      response.end(`${lines.join('\n')}\n`);
      return;
    }
    const reply = batches ? answerBatch(Buffer.concat(pieces).toString()) : REPLY;
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(reply),
    });
    response.end(reply);
  });
});
const sockets = new WebSocketServer({ server, path: '/v1/ws' });
sockets.on('connection', socket => {
  socket.on('message', data => {
    if (batches) socket.send(answerBatch(data.toString()));
    else socket.send(data, { binary: false });
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(`bare server listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
