import t from 'tap';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { EngineHttp } from './engine-client.ts';

const PIECES = 600;
const PIECE_BYTES = 2 ** 15;

t.test('a line without end costs no more than as many short ones', async t => {
  const { url } = await serveHttp(t, (request, response) => {
    const piece = 'x'.repeat(PIECE_BYTES - 1) + (request.url === '/lines' ? '\n' : 'x');
    let left = PIECES;
    const send = () => {
      while (left-- > 0) if (!response.write(piece)) return void response.once('drain', send);
      response.end('\n{"index":7}\n');
    };
    send();
  });
  const http = new EngineHttp({ url, timeoutMs: 120_000 });
  t.teardown(() => http.close());
  /** Microseconds of processor time for a reply. */
  const cost = async (path: string): Promise<number> => {
    const before = process.cpuUsage();
    let last: object = {};
    await http.postLines(path, {}, new AbortController().signal, line => {
      last = line;
    });
    t.same(last, { index: 7 });
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  await cost('/lines');
  const short = await cost('/lines');
  const long = await cost('/line');
  t.ok(long < 4 * short, `${long} µs for one line, ${short} µs for ${PIECES}`);
});
