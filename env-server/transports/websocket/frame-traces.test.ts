import t from 'tap';
import { dial, listening } from '../../../test/wire.test-data.ts';

const SOCKET = '1'.repeat(32);
const OWN = '2'.repeat(32);
const traceparent = (trace: string) => `00-${trace}-${'b'.repeat(16)}-01`;
/** Trace headers that W3C Trace Context ignores. */
const NO_TRACES = [
  '00-zz',
  traceparent('0'.repeat(32)),
  traceparent(OWN).replace('b'.repeat(16), '0'.repeat(16)),
  traceparent(OWN).replace('00-', 'ff-'),
  `${traceparent(OWN)}-more`,
  traceparent(OWN.replaceAll('2', 'A')),
];

for (const protocol of ['ragen.json', 'ragen.msgpack']) {
  t.test(`${protocol}: problems name the trace of their frame, else that of the socket`, async t => {
    const app = await listening(t);
    const headers = { traceparent: traceparent(SOCKET) };
    const { send, next } = await dial(t, app, '/v1/ws', { protocol, headers });
    const ask = async (frame: object) => {
      send({ id: 1, ...frame });
      return next();
    };
    const unknown = { op: 'get', session_id: 'unknown' };
    t.match(await ask(unknown), { error: { trace_id: SOCKET } });
    t.match(await ask({ ...unknown, traceparent: traceparent(OWN) }), { error: { trace_id: OWN } });
    t.match(await ask({ op: 'nothing', traceparent: traceparent(OWN) }), { error: { trace_id: OWN } });
    t.match(await ask({ op: 'ping', traceparent: traceparent(OWN) }), { result: { pong: true } });
    for (const none of NO_TRACES) {
      t.match(await ask({ ...unknown, traceparent: none }), { error: { trace_id: SOCKET } }, none);
    }
    const later = `01${traceparent(OWN).slice(2)}-more`;
    t.match(await ask({ ...unknown, traceparent: later }), { error: { trace_id: OWN } });
    t.match(await ask({ ...unknown, traceparent: 7 }), {
      error: { code: 'invalid_request', trace_id: SOCKET, errors: [{ pointer: '/traceparent' }] },
    });
    t.match(await ask({ op: 'batch', items: [unknown], traceparent: traceparent(OWN) }), {
      result: { results: [{ ok: false, error: { trace_id: OWN } }] },
    });
    t.match(
      await ask({ op: 'batch', items: [{ ...unknown, traceparent: traceparent(OWN) }] }),
      {
        result: { results: [{ error: { code: 'invalid_request', errors: [{ pointer: '/traceparent' }] } }] },
      },
      'a batch is one request and lies in one trace',
    );
    t.match(await ask(unknown), { error: { trace_id: SOCKET } }, 'the next frame is outside of it');
  });
}

t.test('a problem that comes late names the trace of its frame as well', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app, '/v1/ws', { protocol: 'ragen.json' });
  send({ id: 1, op: 'create', env_id: 'test/Slow-v0' });
  const { session_id } = (await next()).result;
  const step = { op: 'step', session_id, action: 'wait' };
  send({ id: 2, ...step, timeout_ms: 1, traceparent: traceparent(OWN) });
  t.match(await next(), { id: 2, error: { code: 'step_timeout', trace_id: OWN } });
});
