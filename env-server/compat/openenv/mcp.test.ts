import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { type TestApp, testApp } from '../../app.test-data.ts';
import { dial, listening } from '../../wire.test-data.ts';

const COUNTER = '/compat/openenv/test%2FCounter-v0';

/** Sends JSON-RPC to the door of the counter. */
function rpc({ ask }: TestApp, path = COUNTER) {
  return async (method: string, params?: Json, id: Json = 1) => {
    const { status, body } = await ask('POST', `${path}/mcp`, {
      jsonrpc: '2.0',
      method,
      id,
      ...(params !== undefined && { params }),
    });
    if (status !== 200) throw new Error(`mcp answered with ${status}`);
    return body;
  };
}

t.test('an environment is one tool', async t => {
  const app = await testApp(t);
  const reply = await rpc(app)('tools/list', undefined, 'x');
  t.same(Object.keys(reply), ['jsonrpc', 'id', 'result']);
  t.match(reply, {
    jsonrpc: '2.0',
    id: 'x',
    result: { tools: [{ name: 'act', description: 'Count to 3.', inputSchema: { required: ['action'] } }] },
  });
  t.same(Object.keys(reply.result.tools[0 as never]), ['name', 'description', 'inputSchema']);
  t.equal(app.sessions.size, 0);
});

t.test('a session is made, played and closed', async t => {
  const app = await testApp(t);
  const call = rpc(app);
  const { session_id } = (await call('openenv/session/create', {})).result;
  const act = (action: Json) =>
    call('tools/call', { name: 'act', arguments: { action }, session_id } as never);
  t.match(await act('add'), {
    id: 1,
    result: {
      content: [{ type: 'text', text: /^1\/3/ }],
      is_error: false,
      data: { observation: { text: /^1\/3/ }, reward: 1, done: false, metadata: { step: 1 } },
      structured_content: { reward: 1 },
    },
  });
  t.match((await act('add')).result.data, { metadata: { step: 2 } });
  t.match(await call('openenv/session/close', { session_id } as never), {
    result: { session_id, closed: true },
  });
  t.equal(app.sessions.size, 0);
  t.match(await call('openenv/session/close', { session_id } as never), { error: { code: -32602 } });
  t.match(await act('add'), { error: { code: -32602, message: /was closed/ } });
});

t.test('a call without a session gets one of its own and leaves none', async t => {
  const app = await testApp(t);
  const call = rpc(app);
  t.match(await call('tools/call', { name: 'act', arguments: { action: 'add' } }), {
    result: { data: { metadata: { step: 1 } } },
  });
  t.match(await call('tools/call', { name: 'act', arguments: { action: [] } }), { error: { code: -32602 } });
  t.equal(app.sessions.size, 0);
});

t.test('every error has its code', async t => {
  const app = await testApp(t, { maxSessions: 1 });
  const call = rpc(app);
  const failure = (code: number, message: RegExp) => ({ jsonrpc: '2.0', id: 1, error: { code, message } });
  t.match(await call('initialize'), failure(-32601, /Method not found: initialize/));
  t.match(await call('tools/call', {}), failure(-32602, /Missing 'name'/));
  t.match(await call('tools/call', { name: 'fly' }), failure(-32602, /Tool not found: "fly"; there is act/));
  t.match(await call('tools/call', { name: 'act', arguments: [] }), failure(-32602, /must be an object/));
  t.match(await call('tools/call', { name: 'act' }), failure(-32602, /action: Field required/));
  t.match(await call('tools/call', []), failure(-32602, /Params must be an object/));
  t.match(
    await call('tools/call', { name: 'act', session_id: 'nobody' }),
    failure(-32602, /no session nobody/),
  );
  t.match(await call('tools/call', { name: 'act', session_id: 5 }), failure(-32602, /must be the id/));
  t.match(await call('openenv/session/close', {}), failure(-32602, /'session_id' is required/));
  await call('openenv/session/create');
  t.match(await call('openenv/session/create'), {
    error: { code: -32000, data: { active_sessions: 1, max_sessions: 1 } },
  });
  const raw = async (body: string, headers = {}) =>
    (await app.ask('POST', `${COUNTER}/mcp`, body, headers)).body;
  t.match(await raw('{"jsonrpc"'), { id: null, error: { code: -32700 } });
  t.match(await raw(''), { id: null, error: { code: -32700 } });
  t.match(await raw('[]'), { id: null, error: { code: -32600 } });
  t.match(await raw('{"id":7,"method":"tools/list"}'), {
    id: 7,
    error: { code: -32600, message: /jsonrpc/ },
  });
  t.match(await raw('{"id":7,"jsonrpc":"2.0"}'), { id: 7, error: { code: -32600, message: /method/ } });
  t.match(await rpc(app, '/compat/openenv/Nope-v0')('tools/list'), { error: { code: -32603 } });
});

t.test('what goes wrong in the environment is an internal error', async t => {
  const app = await testApp(t);
  const call = rpc(app, '/compat/openenv/test%2FFaulty-v0');
  t.match(await call('tools/call', { name: 'act', arguments: { action: 'throw' } }), {
    error: { code: -32603, message: /out of order/ },
  });
  t.equal(app.sessions.size, 0);
});

t.test('over the WebSocket the tool acts in the session of the socket', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app, `${COUNTER}/ws`);
  const ask = async (data: JsonObject) => {
    send({ type: 'mcp', data });
    return next();
  };
  const request = (method: string, params: JsonObject = {}): JsonObject => ({
    jsonrpc: '2.0',
    id: 3,
    method,
    params,
  });
  t.match(await ask(request('tools/list')), {
    type: 'mcp',
    data: { id: 3, result: { tools: [{ name: 'act' }] } },
  });
  await ask(request('tools/call', { name: 'act', arguments: { action: 'add' } }));
  send({ type: 'state' });
  const { session_id } = (await next()).data;
  t.match(app.sessions.size, 1);
  t.match(await ask(request('openenv/session/create')), { data: { result: { session_id } } });
  t.match(await ask(request('openenv/session/close', { session_id: String(session_id) })), {
    data: { error: { code: -32600, message: /Cannot close active WebSocket-managed session/ } },
  });
  t.match(await ask({}), { type: 'mcp', data: { jsonrpc: '2.0', id: null, error: { code: -32600 } } });
  send({ type: 'step', data: { action: 'add' } });
  t.match(await next(), { data: { metadata: { step: 2 } } });
});
