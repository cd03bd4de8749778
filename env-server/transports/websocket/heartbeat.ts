import type { FastifyInstance } from 'fastify';
import type { PacedWebSocket } from './paced-websocket.ts';

const MS_PER_S = 1000;
/** A beat that comes this many times its interval after the last one says that this process was blocked, not the peers. */
const LATE = 1.5;

interface Heartbeat {
  /** It has sent nothing since the last beat. */
  silent: boolean;
  /** Bytes that had left for it at the last beat, where others waited; undefined where none did. */
  sent: number | undefined;
}

/**
 * Pings sockets, and cuts those that have sent nothing since the last ping or have taken none of the bytes that wait
 * for them: a peer behind a lost cable never closes. A socket that is not read, as too many of its frames wait, need
 * not have sent anything.
 * @returns takes a socket into care until it closes
 */
export function heartbeat(app: FastifyInstance, seconds: number): (socket: PacedWebSocket) => void {
  const heartbeats = new Map<PacedWebSocket, Heartbeat>();
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const late = now - last > LATE * seconds * MS_PER_S;
    last = now;
    for (const [socket, heartbeatOf] of heartbeats) {
      const sent = socket.bytesUnsent > 0 ? socket.bytesSent : undefined;
      const stuck = sent !== undefined && sent === heartbeatOf.sent;
      if (!late && (stuck || (heartbeatOf.silent && socket.isRead))) {
        socket.terminate();
        continue;
      }
      heartbeatOf.silent = true;
      heartbeatOf.sent = sent;
      socket.ping();
    }
  }, seconds * MS_PER_S).unref();
  app.addHook('onClose', async () => clearInterval(timer));
  return socket => {
    const heartbeatOf: Heartbeat = { silent: false, sent: undefined };
    const heard = () => {
      heartbeatOf.silent = false;
    };
    heartbeats.set(socket, heartbeatOf);
    socket.on('message', heard);
    socket.on('ping', heard);
    socket.on('pong', heard);
    socket.on('close', () => heartbeats.delete(socket));
  };
}
