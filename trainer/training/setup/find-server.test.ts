import { createServer } from 'node:http';
import t from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { findServer } from './find-server.ts';

const settingsFor = (port: number, server_patience_s = 600) =>
  ({
    servers: [{ url: `http://127.0.0.1:${port}` }],
    rollout: { server_patience_s },
  }) as unknown as Parameters<typeof findServer>[0];
const never = new AbortController().signal;

t.test('a missing server is named with the command that starts one, and then waited for', async t => {
  const port = await freePort();
  const notes: string[] = [];
  const server = createServer((_request, reply) => reply.writeHead(503).end());
  t.teardown(() => server.close());
  await findServer(
    settingsFor(port),
    text => {
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
