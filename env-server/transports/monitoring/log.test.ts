import { once } from 'node:events';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { dial } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const headers = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };

async function logged(t: Test, level: string) {
  const lines: { [key: string]: unknown }[] = [];
  const log = pino({ level }, { write: (line: string) => lines.push(JSON.parse(line)) });
  const { server } = await createApp({}, { registry: testRegistry(), log });
  t.teardown(() => server.close());
  const open = async (env_id: string) => {
    const payload = { env_id, config: env_id === 'test/Broken-v0' ? { at: 'step' } : {} };
    return String((await server.inject({ method: 'POST', url: '/v1/sessions', payload })).json().session_id);
  };
  return { lines, server, open };
}

t.test('every transport logs a fault with its cause, trace and session', async t => {
  const { lines, server, open } = await logged(t, 'warn');
  const session_id = await open('test/Broken-v0');
  const step = { op: 'step', session_id, action: 'add' };
  await server.inject({
    method: 'POST',
    url: `/v1/sessions/${session_id}/step`,
    payload: { action: 'add' },
    headers,
  });
  const fault = {
    level: 50,
    code: 'environment_fault',
    trace_id: TRACE,
    session_id,
    err: { message: /it broke/, stack: /environments\.test-data\.ts/ },
  };
  t.match(lines, [fault]);
  const other = await open('test/Broken-v0');
  await server.inject({
    method: 'POST',
    url: '/v1/batch',
    payload: { items: [{ ...step, session_id: other }] },
    headers,
  });
  t.match(lines[1], { ...fault, session_id: other });
  t.equal(lines.length, 2, 'mistakes of clients are not logged at this level');
});

t.test('at the level debug every request is logged, and every problem', async t => {
  const { lines, server, open } = await logged(t, 'debug');
  const session_id = await open('test/Counter-v0');
  await server.inject({ method: 'GET', url: '/v1/sessions/unknown', headers });
  await server.inject({ method: 'GET', url: `/v1/sessions/${session_id}` });
  await server.inject({ method: 'GET', url: '/v1/sessions?limit=1&token=secret' });
  await server.inject({ method: 'GET', url: '/nowhere?secret' });
  t.match(lines, [
    { level: 20, method: 'POST', url: '/v1/sessions', status: 201, ms: Number },
    { level: 20, code: 'unknown_session', trace_id: TRACE, session_id: 'unknown' },
    { level: 20, url: '/v1/sessions/unknown', status: 404, trace_id: TRACE },
    { level: 20, status: 200, session_id },
    { level: 20, code: 'invalid_request' },
    { level: 20, url: '/v1/sessions?…' },
    { level: 20, code: 'not_found' },
    { level: 20, url: '/nowhere?…', status: 404 },
  ]);
  t.notMatch(JSON.stringify(lines), 'secret', 'no query is logged');
});

t.test('a frame that is too large is not an error of the server', async t => {
  const { lines, server } = await logged(t, 'warn');
  await server.listen({ port: 0, host: '127.0.0.1' });
  const { socket } = await dial(t, { server }, '/v1/ws');
  socket.on('error', () => undefined);
  const closed = once(socket, 'close');
  socket.send('x'.repeat(5 * 1024 * 1024));
  await closed;
  t.same(lines, []);
});
