import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { findServer } from './find-server.ts';

const settingsFor = (port: number, server_patience_s = 600) =>
  ({
    servers: [{ url: `http://127.0.0.1:${port}` }],
    rollout: { server_patience_s },
  }) as unknown as Parameters<typeof findServer>[0];
const never = new AbortController().signal;

/** A port that nothing listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise(done => server.once('listening', done));
  const { port } = server.address() as AddressInfo;
  await new Promise(done => server.close(done));
  return port;
}

t.test('a missing server is named with the command that starts one, and then waited for', async t => {
  const port = await freePort();
  const notes: string[] = [];
  const server = createServer((_request, reply) => reply.writeHead(503).end());
  t.teardown(() => server.close());
  const began = performance.now();
  await findServer(
    settingsFor(port),
    text => {
      t.ok(performance.now() - began < 2000, 'within two seconds');
      notes.push(text);
      server.listen(port, '127.0.0.1');
    },
    never,
  );
  t.equal(notes.length, 1);
  t.match(
    notes[0],
    new RegExp(`no environment server answers at http://127.0.0.1:${port} \\(nothing listens there\\)`),
  );
  t.match(notes[0], new RegExp(`npm run env-server -- --port ${port}`));
});

t.test('patience ends, and so does waiting when the run is to stop', async t => {
  const port = await freePort();
  await t.rejects(
    findServer(settingsFor(port, 0), () => {}, never),
    /no environment server answers/,
  );
  const stop = new AbortController();
  await t.rejects(
    findServer(settingsFor(port), () => stop.abort(new Error('stop')), stop.signal),
    /stop|abort/,
  );
});
