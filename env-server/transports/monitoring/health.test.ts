import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { VERSION } from '../../../shared/program.ts';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, listening } from '../../../test/wire.test-data.ts';
import { OPERATIONS } from '../../operations/table.ts';

t.test('metrics count sessions, episodes, operations, problems', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  const over = await open({ config: { goal: 1 } });
  await ask('POST', `/v1/sessions/${over}/step`, { action: 'add' });
  for (let i = 0; i < 3; i++) await ask('POST', `/v1/sessions/${id}/step`, { action: 'draw' });
  await ask('POST', `/v1/sessions/${id}/step`, { action: {} });
  await ask('POST', `/v1/sessions/${id}/reset`);
  await ask('DELETE', `/v1/sessions/${id}`);
  await ask('GET', '/nowhere');
  await ask('GET', '/v1/envs/%ff');
  const { text, headers } = await ask('GET', '/metrics');
  t.match(headers['content-type'], /^text\/plain/);
  const env = 'env_id="test/Counter-v0"';
  for (const line of [
    `ragen_sessions{${env}} 1`,
    `ragen_episodes_total{${env}} 3`,
    'ragen_sessions_ended_total{ending="session_closed"} 1',
    'ragen_problems_total{code="invalid_action",status="422"} 1',
    `ragen_operation_seconds_count{${env},operation="step"} 4`,
    `ragen_operation_seconds_bucket{${env},operation="step",le="+Inf"} 4`,
    'ragen_operation_latency_seconds_count{operation="step"} 4',
    'ragen_operation_latency_seconds_bucket{operation="step",le="+Inf"} 4',
    'ragen_http_requests_total{method="POST",route="/v1/sessions",status="2xx"} 2',
    'ragen_http_requests_total{method="POST",route="/v1/sessions/:session_id/step",status="2xx"} 4',
    'ragen_http_requests_total{method="POST",route="/v1/sessions/:session_id/step",status="4xx"} 1',
    'ragen_http_requests_total{method="GET",route="none",status="4xx"} 2',
    `ragen_build_info{version="${VERSION}",node="${process.versions.node}"} 1`,
    'ragen_sessions_by_state{state="playing"} 0',
    'ragen_sessions_by_state{state="terminated"} 1',
    'ragen_sessions_by_state{state="busy"} 0',
    'ragen_queue_depth 0',
    'ragen_websockets 0',
  ]) {
    t.ok(text.includes(`${line}\n`), line);
  }
  t.match(text, /nodejs_eventloop_lag_seconds /);
});

t.test('an environment adds few samples, and an upgrade is a request too', async t => {
  const app = await listening(t);
  const lines = async () =>
    (await app.ask('GET', '/metrics')).text.split('\n').filter(line => /^ragen_/.test(line));
  const env_id = 'test/Counter-v0';
  const { send, next } = await dial(t, app, '/v1/ws');
  send({
    id: 1,
    op: 'batch',
    items: [
      { op: 'create', env_id },
      { op: 'create', env_id },
    ],
  });
  const { results } = (await next()).result;
  const [{ result }] = results as unknown as { result: { session_id: string } }[];
  const play = (session_id: string) =>
    ['step', 'get', 'reset', 'snapshot', 'render'].map(op => ({
      op,
      session_id,
      ...(op === 'step' && { action: 'add' }),
    }));
  send({ id: 2, op: 'batch', items: play(result.session_id) });
  await next();
  const first = await lines();
  t.ok(first.includes('ragen_http_requests_total{method="GET",route="/v1/ws",status="1xx"} 1'));
  const other = await app.open({ env_id: 'test/Held-v0' });
  await app.ask('POST', '/v1/batch', { items: play(other) });
  const added = (await lines()).length - first.length;
  t.ok(added <= 50, `${added} samples`);
});

t.test('the age of the last checkpoint is a metric, and absent before the first', async t => {
  const agesOf = async ({ ask }: TestApp) =>
    [...(await ask('GET', '/metrics')).text.matchAll(/^ragen_checkpoint_age_seconds (\S+)$/gm)].map(
      ([, age]) => Number(age),
    );
  const rare = await testApp(t, { data: t.testdir(), checkpointSeconds: 3600 });
  await rare.open();
  t.same(await agesOf(rare), []);
  const often = await testApp(t, { data: t.testdir(), checkpointSeconds: 0.01 });
  await often.open();
  await until(async () => (await agesOf(often)).length > 0);
  const ages = await agesOf(often);
  t.ok(ages.length === 1 && ages[0] >= 0 && ages[0] < 3600, `${ages} s`);
});

t.test('livez and readyz say which version runs', async t => {
  const { ask } = await testApp(t);
  t.same((await ask('GET', '/livez')).body, { status: 'ok', version: VERSION });
  t.match((await ask('GET', '/readyz')).body, {
    status: 'ok',
    version: VERSION,
    persistence: { state: 'ok' },
  });
  t.match(VERSION, /^\d+\.\d+\.\d+/);
});

t.test('the reference shows every operation', async t => {
  const { ask } = await testApp(t);
  const { text, status } = await ask('GET', '/openapi.json');
  t.equal(status, 200);
  const { paths, openapi } = JSON.parse(text);
  t.equal(openapi, '3.1.0');
  for (const { path, method, name } of OPERATIONS) {
    t.equal(paths[path][method.toLowerCase()].operationId, name);
  }
  t.ok(paths['/v1/batch'].post);
  t.match((await ask('GET', '/docs/')).text, /<title>Reference · ragen<\/title>/);
  t.match((await ask('GET', '/docs/json')).text, /"operationId":"step"/);
});

t.test('the trace of a request is found in its problem', async t => {
  const { ask } = await testApp(t);
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
  const reply = await ask('GET', '/v1/sessions/s1', undefined, {
    traceparent: `00-${trace}-00f067aa0ba902b7-01`,
  });
  isProblem(t, reply, 'unknown_session');
  t.equal(reply.body.trace_id, trace);
});

t.test('malformed HTTP gets a problem and the server continues', async t => {
  const { ask, server } = await testApp(t);
  await server.listen({ port: 0, host: '127.0.0.1' });
  const socket = connect((server.server.address() as { port: number }).port, '127.0.0.1');
  let text = '';
  socket.on('data', chunk => {
    text += chunk;
  });
  socket.write('BREW /pot HTCPCP/1.0\r\n\r\n');
  await once(socket, 'close');
  const [head, body] = text.split('\r\n\r\n');
  t.match(head, /^HTTP\/1\.1 400 [\s\S]*application\/problem\+json/);
  t.match(JSON.parse(body), { code: 'bad_request', status: 400, trace_id: String });
  t.equal((await ask('GET', '/livez')).status, 200);
});

t.test(
  'while sessions are resumed the server is not ready, and operations wait no longer than a step may',
  async t => {
    const { ask, sessions } = await testApp(t, { stepTimeoutMs: 20 });
    let end = () => {};
    sessions.resumption = new Promise(resolve => {
      end = resolve;
    });
    isProblem(t, await ask('GET', '/readyz'), 'worker_unavailable');
    t.equal((await ask('GET', '/livez')).status, 200);
    const refused = await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
    isProblem(t, refused, 'worker_unavailable');
    t.equal(refused.headers['retry-after'], '1');
    t.equal(sessions.size, 0);
    end();
    sessions.resumption = undefined;
    t.equal((await ask('GET', '/readyz')).status, 200);
  },
);
