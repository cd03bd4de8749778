import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { binaryFrames, textFrames } from './protocol.ts';

const lengths = [
  0, 1, 41, 42, 63, 125, 126, 127, 200, 300, 16_000, 16_001, 21_845, 21_846, 65_535, 65_536, 200_000,
];

t.test('a client reads back frames of any length and letters', async t => {
  const whole = lengths.flatMap(length => ['a', 'é', '√', '🧊'].map(letter => letter.repeat(length)));
  const inPieces = [['a', '√'.repeat(90), 'é'], ['🧊'.repeat(20_000), '', 'a'.repeat(200)], ['a'], []];
  const texts = [...whole, ...inPieces];
  const sent = [...whole, ...texts];
  const server = new WebSocketServer({ port: 0 });
  // Alone, as most leave, and together.
  server.on('connection', (_socket, { socket }) => {
    for (const text of whole) socket.write(textFrames([text]), 'latin1');
    socket.write(textFrames(texts), 'latin1');
  });
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  t.teardown(() => {
    client.terminate();
    server.close();
  });
  const received: string[] = [];
  client.on('message', data => received.push(data.toString()));
  while (received.length < sent.length) await once(client, 'message');
  t.ok(sent.every((text, i) => [text].flat().join('') === received[i]));
});

t.test('binary frames, too', async t => {
  const messages = lengths.map(length => Buffer.alloc(length, length % 251));
  const server = new WebSocketServer({ port: 0 });
  server.on('connection', (_socket, request) => request.socket.write(binaryFrames(messages)));
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  t.teardown(() => {
    client.terminate();
    server.close();
  });
  const received: Buffer[] = [];
  client.on('message', (data, isBinary) => {
    if (isBinary) received.push(data as Buffer);
  });
  while (received.length < messages.length) await once(client, 'message');
  t.ok(messages.every((message, i) => message.equals(received[i])));
});
