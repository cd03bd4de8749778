import type { FastifyInstance } from 'fastify';
import type { WebSocket } from 'ws';

const MS_PER_S = 1000;

/**
 * Pings sockets and cuts those that have sent nothing since the last ping: a peer behind a lost cable never closes.
 * @returns takes a socket into care until it closes
 */
export function heartbeat(app: FastifyInstance, seconds: number): (socket: WebSocket) => void {
  const quiet = new Map<WebSocket, boolean>();
  const timer = setInterval(() => {
    for (const [socket, silent] of quiet) {
      if (silent) {
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
