import type { FastifyInstance } from 'fastify';
import type { WebSocket } from 'ws';

const MS_PER_S = 1000;
/** A beat that comes so many times its interval after the last one says that this process was held up, not the peers. */
const LATE = 1.5;

/**
 * Pings sockets and cuts those that have sent nothing since the last ping: a peer behind a lost cable never closes.
 * @returns takes a socket into care until it closes
 */
export function heartbeat(app: FastifyInstance, seconds: number): (socket: WebSocket) => void {
  const quiet = new Map<WebSocket, boolean>();
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const late = now - last > LATE * seconds * MS_PER_S;
    last = now;
    for (const [socket, silent] of quiet) {
      if (silent && !late) {
        socket.terminate();
        continue;
      }
      quiet.set(socket, true);
      socket.ping();
    }
  }, seconds * MS_PER_S).unref();
  app.addHook('onClose', async () => clearInterval(timer));
  return socket => {
    const heard = () => quiet.set(socket, false);
    heard();
    socket.on('message', heard);
    socket.on('pong', heard);
    socket.on('close', () => quiet.delete(socket));
  };
}
