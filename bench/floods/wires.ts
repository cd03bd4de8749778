import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

const FINAL_TEXT = 0x81;
const FINAL_BINARY = 0x82;
const MASKED = 0x80;
const MAX_SHORT = 125;
const MAX_16_BIT = 0xffff;

/** A TCP connection that ignores errors and its end: the server may cut it. */
export async function openSocket(origin: string): Promise<Socket> {
  const { hostname, port } = new URL(origin);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

/** A hand-written WebSocket client that sends the given frames and reads nothing unless asked to. */
export async function openWebSocket(origin: string, path: string, protocol?: string): Promise<Socket> {
  const socket = await openSocket(origin);
  socket.write(
    [
      `GET ${path} HTTP/1.1`,
      `Host: ${new URL(origin).host}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
      ...(protocol === undefined ? [] : [`Sec-WebSocket-Protocol: ${protocol}`]),
      '\r\n',
    ].join('\r\n'),
  );
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!head.toString('latin1').startsWith('HTTP/1.1 101 ')) throw new Error(String(head));
  socket.pause();
  return socket;
}

/** A client's frame. Its mask is zero, so it contains the payload unchanged. */
export function frameOf(payload: string | Uint8Array): Buffer {
  const body = Buffer.from(payload as string);
  const { length } = body;
  const first = typeof payload === 'string' ? FINAL_TEXT : FINAL_BINARY;
  let head: Buffer;
  if (length <= MAX_SHORT) head = Buffer.from([first, MASKED | length]);
  else if (length <= MAX_16_BIT) head = Buffer.from([first, MASKED | 126, length >> 8, length & 0xff]);
  else {
    head = Buffer.alloc(10);
    head[0] = first;
    head[1] = MASKED | 127;
    head.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([head, Buffer.alloc(4), body]);
}

/** Writes the same again and again, as fast as the server takes it, until the connection ends. */
export async function pour(socket: Socket, bytes: Buffer): Promise<void> {
  while (socket.writable) {
    if (socket.write(bytes)) await new Promise(resolve => setImmediate(resolve));
    else {
      await new Promise<void>(resolve => {
        const done = () => {
          socket.off('drain', done);
          socket.off('close', done);
          resolve();
        };
        socket.on('drain', done);
        socket.on('close', done);
      });
    }
  }
}

/** The same text so often that it makes about this many bytes. */
export function repeated(piece: Buffer, bytes: number): Buffer {
  return Buffer.concat(new Array<Buffer>(Math.max(1, Math.floor(bytes / piece.length))).fill(piece));
}
