import type { Duplex } from 'node:stream';

/** Milliseconds for which the server still reads from a client that sends. */
const LINGER_MS = 1000;

/**
 * Sends the last bytes of a connection and closes it. What the client still sends is discarded for a short while: bytes
 * that nobody reads would keep the connection half open, and a reset at once could take the reply from the client.
 */
export function lingeringClose(socket: Duplex, last: string): void {
  const cut = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(cut));
  socket.on('error', () => socket.destroy());
  socket.end(last);
  socket.removeAllListeners('data');
  socket.resume();
}
