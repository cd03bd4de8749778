import { once } from 'node:events';
import type { Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { TestApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, listening, type Wire } from '../../../test/wire.test-data.ts';

/** Sockets that answer a message with a step that waits to be let through. */

const MB = 1024 * 1024;
const ENV = '/compat/openenv/test%2FSlow-v0';
/** Steps as the two protocols have them. */
const STEPS = {
  ws: { type: 'step', data: { action: 'add' } },
  mcp: { jsonrpc: '2.0', id: 0, method: 'tools/call', params: { name: 'act', arguments: { action: 'add' } } },
} as const;
type Protocol = keyof typeof STEPS;
const PROTOCOLS: readonly Protocol[] = ['ws', 'mcp'];

interface Stepping {
  readonly app: TestApp;
  readonly wire: Wire;
  /** The server's end. */
  readonly stream: Socket;
}

async function stepping(t: Test, protocol: Protocol): Promise<Stepping> {
  const app = await listening(t);
  const streams: Socket[] = [];
  app.server.server.on('connection', socket => streams.push(socket));
  const wire = await dial(t, app, `${ENV}/${protocol}`);
  wire.send(STEPS[protocol]);
  await until(() => waiting.length === 1);
  return { app, wire, stream: streams[0] };
}

for (const protocol of PROTOCOLS) {
  t.test(`/${protocol} is not read while a message is answered and many wait, and answers all`, async t => {
    const { app, wire, stream } = await stepping(t, protocol);
    const count = 30;
    const wrong = { type: 'sing', pad: 'x'.repeat(MB) };
    for (let i = 0; i < count; i++) wire.send(wrong);
    let before = -1;
    await until(async () => {
      const isSame = stream.bytesRead === before;
      before = stream.bytesRead;
      for (let i = 0; i < 5; i++) await app.ask('GET', '/livez');
      return isSame && before > MB;
    });
    t.ok(before < 4 * MB, `${before} bytes were read`);
    waiting.shift()!();
    await until(() => wire.replies.length === count + 1);
    t.match(wire.replies[0], protocol === 'ws' ? { type: 'observation' } : { id: 0, result: {} });
    for (const reply of wire.replies.slice(1))
      t.match(reply, protocol === 'ws' ? { data: { code: 'UNKNOWN_TYPE' } } : { error: { code: -32600 } });
  });

  t.test(`/${protocol} answers pings while a message is answered, also before those that wait`, async t => {
    const { wire } = await stepping(t, protocol);
    for (const more of ['', STEPS[protocol]]) {
      if (more !== '') wire.send(more);
      const answered = once(wire.socket, 'pong');
      wire.socket.ping('now');
      t.equal(String((await answered)[0]), 'now');
    }
    t.same(wire.replies, []);
    waiting.shift()!();
    t.ok(await wire.next());
  });

  t.test(`/${protocol} gives its session up when its client leaves while a message is answered`, async t => {
    const { app, wire } = await stepping(t, protocol);
    for (let i = 0; i < 10; i++) wire.send(STEPS[protocol]);
    wire.socket.close();
    await until(() => app.sessions.size === 0);
    t.equal(waiting.length, 1, 'nothing more was begun');
  });
}
