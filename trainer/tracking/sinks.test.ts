import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { serveHttp } from '../../test/local-server.test-data.ts';
import { MlflowRun } from './sinks.ts';

interface Asked {
  readonly call: string;
  readonly body: { readonly [key: string]: unknown };
}

/** A tracking server as MLflow's REST documentation describes it, in memory. */
async function trackingServer(t: Test, fail: (count: number) => number | undefined = () => undefined) {
  const asked: Asked[] = [];
  const experiments = new Map<string, string>();
  const reply = (response: ServerResponse, status: number, body: unknown) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  const { url } = await serveHttp(t, (request, response, text) => {
    const [path, query] = request.url!.split('?');
    const call = path.replace('/api/2.0/mlflow/', '');
    asked.push({ call, body: text === '' ? { query } : JSON.parse(text) });
    const status = fail(asked.length);
    if (status !== undefined) return reply(response, status, { error_code: 'INTERNAL_ERROR' });
    if (call === 'experiments/get-by-name') {
      const id = experiments.get(new URLSearchParams(query).get('experiment_name')!);
      if (id === undefined) return reply(response, 404, { error_code: 'RESOURCE_DOES_NOT_EXIST' });
      return reply(response, 200, { experiment: { experiment_id: id } });
    }
    if (call === 'experiments/create') {
      experiments.set(JSON.parse(text).name, '7');
      return reply(response, 200, { experiment_id: '7' });
    }
    if (call === 'runs/create') return reply(response, 200, { run: { info: { run_id: 'abc' } } });
    return reply(response, 200, {});
  });
  return { url: `${url}/`, asked };
}

const run = {
  name: 'lake-001',
  config: { seed: 3, loss: { policy: 'ppo', kl: { coefficient: 0 } }, tags: ['a', 'b'] },
};
const metricsOf = (asked: readonly Asked[]) =>
  asked.flatMap(({ call, body }) => (call === 'runs/log-batch' ? ((body.metrics ?? []) as object[]) : []));

t.test('an experiment, a run with its settings, and every number', async t => {
  const { url, asked } = await trackingServer(t);
  const notes: string[] = [];
  const folder = t.testdir();
  const settings = { url, experiment: 'lakes & rooms' };
  const idFile = join(folder, 'mlflow.json');
  const first = new MlflowRun(settings, run, idFile, text => notes.push(text));
  first.write(1, { 'actor/pg_loss': -0.25, 'train/Lake/pass@4': 0.5 });
  first.write(2, { 'actor/pg_loss': Number.NaN });
  await first.close();
  t.same(
    asked.slice(0, 4).map(({ call }) => call),
    ['experiments/get-by-name', 'experiments/create', 'runs/create', 'runs/log-batch'],
  );
  t.equal(asked[0].body.query, 'experiment_name=lakes%20%26%20rooms');
  t.match(asked[2].body, { experiment_id: '7', run_name: 'lake-001' });
  t.same(asked[3].body.params, [
    { key: 'seed', value: '3' },
    { key: 'loss.policy', value: 'ppo' },
    { key: 'loss.kl.coefficient', value: '0' },
    { key: 'tags', value: '["a","b"]' },
  ]);
  t.match(metricsOf(asked), [
    { key: 'actor/pg_loss', value: -0.25, step: 1 },
    { key: 'train/Lake/pass_at_4', value: 0.5, step: 1 },
    { key: 'actor/pg_loss', value: 'NaN', step: 2 },
  ]);
  t.match(asked.at(-1), { call: 'runs/update', body: { run_id: 'abc', status: 'FINISHED' } });
  t.same(notes, []);

  const before = asked.length;
  const second = new MlflowRun(settings, run, idFile, text => notes.push(text));
  second.write(3, { 'actor/pg_loss': 0 });
  await second.close();
  t.same(
    asked.slice(before).map(({ call, body }) => [call, body.run_id]),
    [
      ['runs/update', 'abc'],
      ['runs/log-batch', 'abc'],
      ['runs/update', 'abc'],
    ],
    'a resumed run continues under its id',
  );
});

t.test('failures that pass are tried again; others cost the numbers and are logged once', async t => {
  const stumbling = await trackingServer(t, count => (count === 1 || count === 4 ? 503 : undefined));
  const notes: string[] = [];
  const sink = (url: string, name: string) =>
    new MlflowRun({ url, experiment: 'x' }, run, join(t.testdirName, name), text => notes.push(text), 2);
  t.testdir();
  const patient = sink(stumbling.url, 'a.json');
  patient.write(1, { loss: 1 });
  await patient.close();
  t.equal(metricsOf(stumbling.asked).length, 1);
  t.same(notes, []);

  const refusing = await trackingServer(t, () => 403);
  const shut = sink(refusing.url, 'b.json');
  shut.write(1, { loss: 1, entropy: 2 });
  await shut.close();
  t.match(notes, [/status 403.*; the run continues without it/, /2 numbers did not reach MLflow/]);
  t.equal(refusing.asked.length, 1);
  const nobody = sink('http://127.0.0.1:1', 'c.json');
  nobody.write(1, { loss: 1 });
  await nobody.close();
  t.equal(notes.length, 4);
});
