import Fastify from 'fastify';
import t from 'tap';
import type { RunReader } from './reader/run-reader.ts';
import { addDashboard } from './routes.ts';

t.test('a server with unreadable runs starts and reports the error to readers', async t => {
  const reader = { runs: () => Promise.reject(new Error('the disk is broken')) } as Partial<RunReader>;
  const app = Fastify();
  addDashboard(app, { reader: reader as RunReader, site: { server: null, api: null } });
  t.teardown(() => app.close());
  await app.listen({ port: 0, host: '127.0.0.1' });
  t.equal((await app.inject('/runs/site.json')).statusCode, 200);
  t.match((await app.inject('/runs/api/runs')).json(), { message: 'the disk is broken' });
});
