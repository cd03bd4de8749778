import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Fastify from 'fastify';
import t from 'tap';
import { listText } from '../compute/run-query.ts';
import { RunReader } from './reader/run-reader.ts';
import { addDashboard } from './routes.ts';
import { writeSampleRun } from './sample-runs.test-data.ts';

t.test('a server with unreadable runs starts and reports the error to readers', async t => {
  const reader = { runs: () => Promise.reject(new Error('the disk is broken')) } as Partial<RunReader>;
  const app = Fastify();
  addDashboard(app, { reader: reader as RunReader, site: { server: null, api: null } });
  t.teardown(() => app.close());
  await app.listen({ port: 0, host: '127.0.0.1' });
  t.equal((await app.inject('/runs/site.json')).statusCode, 200);
  t.match((await app.inject('/runs/api/runs')).json(), { message: 'the disk is broken' });
});

t.test('metrics are requested by names that have commas', async t => {
  const root = t.testdir();
  const folder = writeSampleRun(root, 'a', { steps: 0 });
  writeFileSync(join(folder, 'metrics.jsonl'), '{"step":1,"clip[0.1,0.2]":3,"hit 100%":4,"c":5}\n');
  const app = Fastify();
  addDashboard(app, { reader: new RunReader(root), site: { server: null, api: null } });
  t.teardown(() => app.close());
  const names = listText(['clip[0.1,0.2]', 'hit 100%']);
  const reply = await app.inject({ url: '/runs/api/metrics', query: { id: 'a', names } });
  t.same(reply.json().series, { 'clip[0.1,0.2]': { x: [1], y: [3] }, 'hit 100%': { x: [1], y: [4] } });
});
