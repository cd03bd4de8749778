import { once } from 'node:events';
import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { VERSION } from '../../../shared/program.ts';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, listening } from '../../../test/wire.test-data.ts';

const COUNTER = '/compat/openenv/test%2FCounter-v0';

/** Sends JSON-RPC to the counter's route. */
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

t.test('a call without a session gets a new one that ends with it', async t => {
  const app = await testApp(t);
  const call = rpc(app);
  t.match(await call('tools/call', { name: 'act', arguments: { action: 'add' } }), {
    result: { data: { metadata: { step: 1 } } },
  });
  t.match(await call('tools/call', { name: 'act', arguments: { action: [] } }), { error: { code: -32602 } });
  t.equal(app.sessions.size, 0);
});

t.test('a step after the end is an error of the tool that says what to do', async t => {
  const app = await testApp(t);
  const call = rpc(app);
  const { session_id } = (await call('openenv/session/create')).result;
  const add = { name: 'act', session_id, arguments: { action: 'add' } };
  for (let last = false; !last; ) last = Boolean((await call('tools/call', add)).result.data.done);
  const over = new RegExp(
    `terminated at step \\d+; reset the session .* POST /v1/sessions/${session_id}/reset, or open another session`,
  );
  t.match(await call('tools/call', add), {
    result: {
      content: [{ type: 'text', text: over }],
      structuredContent: { code: 'episode_over', retryable: false },
      isError: true,
      is_error: true,
    },
  });
  await app.ask('POST', `/v1/sessions/${session_id}/reset`, {});
  t.match(await call('tools/call', add), { result: { isError: false, data: { metadata: { step: 1 } } } });
});

t.test('every error has its code', async t => {
  const app = await testApp(t, { maxSessions: 1 });
  const call = rpc(app);
  const failure = (code: number, message: RegExp) => ({ jsonrpc: '2.0', id: 1, error: { code, message } });
  t.match(await call('server/discover'), failure(-32601, /Method not found: server\/discover/));
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
  t.match(await raw('{"id":[7],"jsonrpc":"2.0","method":"ping"}'), {
    id: null,
    error: { code: -32600, message: /id must be/ },
  });
  t.match(await rpc(app, '/compat/openenv/Nope-v0')('tools/list'), { error: { code: -32603 } });
});

t.test('an exception in the environment is an internal error', async t => {
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

/** Sends a message of MCP as its clients do. */
function posting({ ask }: TestApp, headers: { [name: string]: string } = {}) {
  return (message: Json, more: { [name: string]: string } = {}) =>
    ask('POST', `${COUNTER}/mcp`, message, {
      accept: 'application/json, text/event-stream',
      ...headers,
      ...more,
    });
}

const hello = (protocolVersion: string): JsonObject => ({
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion, capabilities: {}, clientInfo: { name: 'test', version: '1' } },
});

const act = (action: Json, id: Json = 2): JsonObject => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'act', arguments: { action } },
});

t.test('a client of MCP is greeted, plays the session of its greeting, and ends it', async t => {
  const app = await testApp(t);
  const post = posting(app);
  const greeting = await post(hello('2025-06-18'));
  t.match(greeting, {
    status: 200,
    headers: { 'content-type': /^application\/json/, 'mcp-session-id': /^s/ },
    body: {
      id: 0,
      result: {
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: String, version: VERSION },
        instructions: /^Count to 3\..*You see:\n0\/3/s,
      },
    },
  });
  const headers = {
    'mcp-session-id': String(greeting.headers['mcp-session-id']),
    'mcp-protocol-version': '2025-06-18',
  };
  const ready = await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, headers);
  t.match(ready, { status: 202, text: '' });
  t.match(await post({ jsonrpc: '2.0', id: 1, method: 'ping' }, headers), { body: { id: 1, result: {} } });
  for (const count of [1, 2]) {
    t.match(await post(act('add'), headers), {
      status: 200,
      body: {
        result: {
          content: [{ type: 'text', text: RegExp(`^${count}/3`) }],
          structuredContent: { reward: 1 },
          isError: false,
        },
      },
    });
  }
  t.equal(app.sessions.size, 1);
  const end = () => app.ask('DELETE', `${COUNTER}/mcp`, undefined, headers);
  t.match(await end(), { status: 204, text: '' });
  t.equal(app.sessions.size, 0);
  t.match(await post(act('add'), headers), { status: 404, body: { id: 2, error: { code: -32602 } } });
  isProblem(t, await end(), 'session_closed');
  isProblem(t, await app.ask('DELETE', `${COUNTER}/mcp`), 'bad_request');
});

t.test('versions are agreed on: the wanted one where it is known, else the newest', async t => {
  const post = posting(await testApp(t));
  const agreed = async (version: string) => (await post(hello(version))).body.result.protocolVersion;
  t.equal(await agreed('2024-11-05'), '2024-11-05');
  t.equal(await agreed('2025-11-25'), '2025-11-25');
  t.equal(await agreed('1999-01-01'), '2025-11-25');
  const ping = { jsonrpc: '2.0', id: 5, method: 'ping' };
  t.match(await post(ping, { 'mcp-protocol-version': '2999-01-01' }), {
    status: 400,
    body: { id: 5, error: { code: -32602, message: /2999-01-01/ } },
  });
});

t.test('two clients of MCP play two sessions', async t => {
  const app = await testApp(t);
  const greet = async () => {
    const { headers } = await posting(app)(hello('2025-06-18'));
    return posting(app, { 'mcp-session-id': String(headers['mcp-session-id']) });
  };
  const [ann, bob] = [await greet(), await greet()];
  await ann(act('add'));
  t.match((await bob(act('add'))).body.result.data, { metadata: { step: 1 } });
  t.equal(app.sessions.size, 2);
});

t.test('notifications and replies of the client get no reply', async t => {
  const app = await testApp(t);
  const post = posting(app);
  for (const message of [
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } },
    { jsonrpc: '2.0', method: 'tools/list' },
    { jsonrpc: '2.0', method: 'no/such' },
    { jsonrpc: '2.0', method: 'tools/list', params: 5 },
    { jsonrpc: '2.0', id: 1, result: {} },
    { jsonrpc: '2.0', id: 1, error: { code: 1, message: 'x' } },
    [
      { jsonrpc: '2.0', method: 'a' },
      { jsonrpc: '2.0', method: 'b' },
    ],
  ]) {
    const reply = await post(message as Json);
    t.match(reply, { status: 202, text: '' }, JSON.stringify(message));
    t.equal(reply.headers['content-type'], undefined);
  }
});

t.test('a batch is answered message by message, as JSON-RPC says', async t => {
  const app = await testApp(t);
  const post = posting(app);
  const { body } = await post([
    { jsonrpc: '2.0', id: 'a', method: 'ping' },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    1,
    { jsonrpc: '2.0', id: 'b', method: 'no/such' },
    {},
  ]);
  t.match(body, [
    { id: 'a', result: {} },
    { id: null, error: { code: -32600 } },
    { id: 'b', error: { code: -32601 } },
    { id: null, error: { code: -32600 } },
  ]);
  t.equal((body as unknown as Json[]).length, 4);
  const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
  t.match((await post([])).body, { id: null, error: { code: -32600, message: /1 to 100/ } });
  t.match((await post(Array.from({ length: 101 }, () => ping))).body, { error: { code: -32600 } });
});

t.test('MCP is not offered as a stream of events, nor to pages of others', async t => {
  const app = await testApp(t);
  const reply = await app.ask('GET', `${COUNTER}/mcp`, undefined, { accept: 'text/event-stream' });
  isProblem(t, reply, 'method_not_allowed');
  t.equal(reply.headers.allow, 'POST, DELETE');
  isProblem(t, await posting(app, { origin: 'http://evil.example' })(hello('2025-06-18')), 'forbidden');
  t.equal(app.sessions.size, 0);
});

t.test('over the WebSocket of /mcp each frame is a message, and the socket has its session', async t => {
  const app = await listening(t);
  const { send, next, socket } = await dial(t, app, `${COUNTER}/mcp`);
  send(hello('2025-06-18'));
  t.match(await next(), { id: 0, result: { protocolVersion: '2025-06-18', instructions: /0\/3/ } });
  send({ jsonrpc: '2.0', method: 'notifications/initialized' });
  send(act('add', 7));
  t.match(await next(), { id: 7, result: { data: { metadata: { step: 1 } } } });
  send('{"jsonrpc"');
  t.match(await next(), { id: null, error: { code: -32700 } });
  send([act('add', 8), { jsonrpc: '2.0', method: 'notifications/progress' }]);
  t.match(await next(), [{ id: 8, result: { data: { metadata: { step: 2 } } } }]);
  t.equal(app.sessions.size, 1);
  socket.close();
  await until(() => app.sessions.size === 0);
});

t.test('a WebSocket of /mcp that gets no session learns why', async t => {
  const app = await listening(t, { maxSessions: 1 });
  await app.open();
  const { next, socket } = await dial(t, app, `${COUNTER}/mcp`);
  const closed = once(socket, 'close');
  t.match(await next(), {
    id: null,
    error: { code: -32000, message: /limit of 1/, data: { active_sessions: 1, max_sessions: 1 } },
  });
  t.equal((await closed)[0], 1013);
});

t.test('a notification over the WebSocket of OpenEnv gets no frame', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app, `${COUNTER}/ws`);
  send({ type: 'mcp', data: { jsonrpc: '2.0', method: 'notifications/initialized' } });
  send({ type: 'state' });
  t.match(await next(), { type: 'state' });
});
