import { createServer } from 'node:http';
import t from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { findServer, findServerSoon } from './find-server.ts';

const settingsFor = (port: number, server_patience_s = 600) => ({
  servers: [{ url: `http://127.0.0.1:${port}` }],
  rollout: { server_patience_s },
});
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
  t.match(notes[0], /for up to 10 min 00 s; Ctrl-C/);
});

t.test('a command that a person waits for gives up after ten seconds at most', async t => {
  const settings = settingsFor(await freePort());
  const stop = new AbortController();
  const notes: string[] = [];
  const found = findServerSoon(
    settings,
    text => {
      notes.push(text);
      stop.abort(new Error('read'));
    },
    stop.signal,
  );
  await t.rejects(found, /read|abort/);
  t.match(notes[0], /for up to 10 s; Ctrl-C/);
  settings.rollout.server_patience_s = 0;
  await t.rejects(
    findServerSoon(settings, () => {}, never),
    /no environment server answers/,
  );
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
