import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';
import { hashToken } from '../access/auth.ts';

const COUNTER = '/mcp/test%2FCounter-v0';

/** Result of a tool; any key may be looked up. */
type Result = JsonObject & {
  readonly content: readonly JsonObject[];
  readonly structuredContent: JsonObject;
};

interface Connected {
  readonly client: Client;
  readonly transport: StreamableHTTPClientTransport;
  call(name: string, args?: JsonObject): Promise<Result>;
}

/** The official client, connected. */
async function connect(
  t: Pick<Test, 'teardown'>,
  app: Pick<TestApp, 'server'>,
  path: string,
  { mode = 'legacy', token }: { mode?: 'legacy' | 'auto'; token?: string } = {},
): Promise<Connected> {
  const transport = new StreamableHTTPClientTransport(new URL(`http://${hostOf(app)}${path}`), {
    ...(token !== undefined && { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
  });
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  t.teardown(() => client.close());
  await client.connect(transport);
  return {
    client,
    transport,
    call: async (name, args = {}) =>
      (await client.callTool({ name, arguments: { ...args } })) as unknown as Result,
  };
}

t.test('the official client plays the session of its initialize', async t => {
  const app = await listening(t);
  const { client, transport, call } = await connect(t, app, COUNTER);
  t.match(client.getServerVersion(), { name: 'ragen/test/Counter-v0', version: String });
  t.match(client.getInstructions(), /^Count to 3\./);
  t.match(transport.sessionId, /^s/);
  t.equal(app.sessions.size, 1);
  const { tools } = await client.listTools();
  t.same(
    tools.map(({ name }) => name),
    ['reset', 'step', 'observe', 'valid_actions'],
  );
  t.match(tools[1], { inputSchema: { type: 'object', required: ['action'] }, description: /add, draw/ });
  const begun = await call('reset');
  t.match(begun, {
    isError: false,
    content: [{ type: 'text', text: /^0\/3/ }],
    structuredContent: { step: 0 },
  });
  t.match(await call('valid_actions'), { structuredContent: { valid_actions: ['add', 'draw'] } });
  t.match(await call('step', { action: 'add' }), {
    content: [{ text: /^1\/3/ }, { text: 'Reward: 1.' }],
    structuredContent: { reward: 1, step: 1, terminated: false },
  });
  await call('step', { action: 'add' });
  t.match(await call('step', { action: 'add' }), {
    content: [{ text: /^3\/3/ }, { text: 'Reward: 1. The episode is over: success.' }],
    structuredContent: { terminated: true, info: { success: true } },
  });
  t.match(await call('observe'), { structuredContent: { return: 3, terminated: true, step: 3 } });
  t.match(await call('step', { action: 'add' }), {
    isError: true,
    structuredContent: { code: 'episode_over', retryable: false },
  });
  t.match(await call('reset', { seed: 5 }), { structuredContent: { seed: 5, step: 0 } });
  await transport.terminateSession();
  t.equal(app.sessions.size, 0);
});

t.test('a reset without wishes keeps an episode that nobody has played', async t => {
  const app = await listening(t);
  const { call } = await connect(t, app, COUNTER);
  const first = (await call('observe')).structuredContent;
  t.match(await call('reset'), { structuredContent: { episode_id: first.episode_id, seed: first.seed } });
  await call('step', { action: 'draw' });
  t.not((await call('reset')).structuredContent.episode_id, first.episode_id);
});

t.test('the official client plays by revision 2026-07-28, where calls name the session', async t => {
  const app = await listening(t);
  const { client, transport, call } = await connect(t, app, COUNTER, { mode: 'auto' });
  t.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
  t.equal(transport.sessionId, undefined);
  const { tools } = await client.listTools();
  t.same(
    tools.map(({ name }) => name),
    ['reset', 'step', 'observe', 'valid_actions', 'close_session'],
  );
  t.equal(app.sessions.size, 0);
  const { session_id } = (await call('reset', { seed: 3, config: { goal: 1 } })).structuredContent;
  t.match(await call('step', { session_id, action: 'add' }), { structuredContent: { terminated: true } });
  t.match(await call('reset', { session_id, seed: 4 }), { structuredContent: { session_id, seed: 4 } });
  t.match(await call('reset', { session_id, config: { goal: 2 } }), {
    isError: true,
    structuredContent: { code: 'invalid_request' },
  });
  t.match(await call('step', { action: 'add' }), {
    isError: true,
    content: [{ text: /session_id/ }],
  });
  t.match(await call('close_session', { session_id }), { structuredContent: { closed: true } });
  t.match(await call('observe', { session_id }), {
    isError: true,
    structuredContent: { code: 'session_closed' },
  });
  t.equal(app.sessions.size, 0);
});

t.test('the address can pin a session that was opened in another way', async t => {
  for (const mode of ['legacy', 'auto'] as const) {
    const app = await listening(t);
    const id = await app.open({ seed: 9 });
    const { transport, call, client } = await connect(t, app, `${COUNTER}?session_id=${id}`, { mode });
    t.equal(transport.sessionId, undefined);
    t.equal((await client.listTools()).tools.length, 4);
    t.match(await call('reset'), { structuredContent: { session_id: id, seed: 9, step: 0 } });
    await call('step', { action: 'add' });
    t.match((await app.ask('GET', `/v1/sessions/${id}`)).body, { step: 1, return: 1 });
    const other = await app.open();
    t.match(await call('observe', { session_id: other }), {
      isError: true,
      structuredContent: { code: 'invalid_request' },
    });
    t.equal(app.sessions.size, 2);
  }
});

t.test('environments have separate tools', async t => {
  const app = await listening(t);
  const named = async (
    envId: string,
    config: JsonObject,
    calls: readonly (readonly [string, JsonObject])[],
  ) => {
    const { body } = await app.ask('POST', '/v1/sessions', { env_id: envId, seed: 1, config });
    const { call, client } = await connect(t, app, `/mcp/${envId}?session_id=${body.session_id}`);
    const results: Result[] = [];
    for (const [name, args] of calls) results.push(await call(name, args));
    const names = (await client.listTools()).tools.slice(4).map(({ name }) => name);
    return { names, results };
  };
  const shop = await named('TextShop-v0', {}, [
    ['search', { query: 'rain jacket' }],
    ['click', { element: 'Back to Search' }],
    ['click', { element: 'Buy Now' }],
  ]);
  t.same(shop.names, ['search', 'click']);
  t.match(shop.results, [
    { structuredContent: { info: { page: 'results', action_is_valid: true } } },
    { structuredContent: { info: { page: 'search', action_is_valid: true } } },
    { content: [{}, { text: /not valid here/ }], structuredContent: { info: { action_is_valid: false } } },
  ]);
  const qa = await named('SearchQA-v0', {}, [
    ['search', { query: 'Cormere' }],
    ['answer', { answer: 'nobody' }],
  ]);
  t.same(qa.names, ['search', 'answer']);
  t.match(qa.results, [
    { structuredContent: { info: { action_type: 'search' } } },
    { structuredContent: { info: { action_type: 'finish' }, terminated: true } },
  ]);
  const house = await named('TextHousehold-v0', {}, [
    ['look', {}],
    ['inventory', {}],
    ['go_to', { furniture: 'nowhere 1' }],
  ]);
  t.same(house.names.slice(0, 5), ['go_to', 'open', 'close', 'take', 'put']);
  t.match(house.results, [
    { structuredContent: { info: { action_is_valid: true } } },
    { structuredContent: { info: { action_is_valid: true } } },
    { structuredContent: { info: { action_is_valid: false } } },
  ]);
});

t.test('a wrapper that changes the actions takes the named tools away', async t => {
  const app = await listening(t);
  const { body } = await app.ask('POST', '/v1/sessions', {
    env_id: 'SearchQA-v0',
    wrappers: [{ name: 'action_text' }],
  });
  const { client } = await connect(t, app, `/mcp/SearchQA-v0?session_id=${body.session_id}`);
  t.equal((await client.listTools()).tools.length, 4);
});

t.test('a picture is content of the type image', async t => {
  const app = await listening(t);
  const { body } = await app.ask('POST', '/v1/sessions', {
    env_id: 'FrozenLake-v0',
    observation_format: 'image',
  });
  const { call } = await connect(t, app, `/mcp/FrozenLake-v0?session_id=${body.session_id}`);
  t.match((await call('observe')).content[0], { type: 'image', mimeType: 'image/png', data: /^iVBOR/ });
});

const hello: JsonObject = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};

function posting({ ask }: TestApp, headers: { [name: string]: string } = {}, path = COUNTER) {
  return (message: Json | string) => ask('POST', path, message, headers);
}

t.test('limits, tokens, hosts and metrics are those of the other transports', async t => {
  const app = await testApp(t, {
    maxSessions: 1,
    tokens: JSON.stringify([
      { name: 'player', sha256: hashToken('secret-a'), scopes: ['play', 'admin'] },
      { name: 'other', sha256: hashToken('secret-b'), scopes: ['play'] },
    ]),
  });
  const mine = { authorization: 'Bearer secret-a' };
  isProblem(t, await posting(app)(hello), 'unauthorized');
  isProblem(t, await posting(app, { ...mine, host: 'evil.example' })(hello), 'host_not_allowed');
  isProblem(t, await posting(app, { ...mine, origin: 'http://evil.example' })(hello), 'forbidden');
  const greeted = await posting(app, mine)(hello);
  const id = String(greeted.headers['mcp-session-id']);
  t.match(greeted, { status: 200, body: { result: { protocolVersion: '2025-11-25' } } });
  const full = await posting(app, mine)(hello);
  t.match(full, {
    status: 429,
    headers: { 'retry-after': String },
    body: { error: { code: -32000, data: { max_sessions: 1 } } },
  });
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
  const others = { authorization: 'Bearer secret-b', 'mcp-session-id': id };
  t.match(await posting(app, others)(list), { status: 404, body: { id: 1, error: { code: -32602 } } });
  t.match(await posting(app, { ...mine, 'mcp-session-id': id })(list), { status: 200 });
  const metrics = (await app.ask('GET', '/metrics', undefined, mine)).text;
  t.match(metrics, /ragen_http_requests_total\{method="POST",route="\/mcp\/:name",status="2xx"\} 2/);
  t.match(metrics, /ragen_problems_total\{code="too_many_sessions",status="429"\} 1/);
  isProblem(t, await app.ask('GET', COUNTER, undefined, mine), 'method_not_allowed');
  t.match(await app.ask('DELETE', COUNTER, undefined, { ...mine, 'mcp-session-id': id }), { status: 204 });
  t.match(await posting(app, { ...mine, 'mcp-session-id': id })(list), { status: 404 });
});

t.test('bad messages are answered and leave no session', async t => {
  const app = await testApp(t, { bodyLimitBytes: 100_000 });
  const post = posting(app);
  t.match(await post('{"jsonrpc"'), { status: 400, body: { id: null, error: { code: -32700 } } });
  for (const message of ['', '[]', '1', 'null', '{}', '[[]]', '{"jsonrpc":"2.0","id":[1],"method":"ping"}']) {
    const { status, body } = await post(message);
    t.ok(status >= 400 && status < 500, `${message} ${status}`);
    t.match(body, { error: { code: Number, message: String } });
  }
  const many = Array.from({ length: 101 }, (_, id) => ({ jsonrpc: '2.0', id, method: 'ping' }));
  t.match(await post(many), { status: 400, body: { error: { code: -32600, message: /1 to 100/ } } });
  t.match(await post({ ...hello, params: {} }), { body: { error: { code: Number } } });
  isProblem(t, await post(JSON.stringify({ ...hello, filler: 'x'.repeat(100_000) })), 'body_too_large');
  t.match(await posting(app, {}, '/mcp/Nope-v0')(hello), {
    status: 404,
    body: { error: { message: /Nope-v0/ } },
  });
  const call = (name: Json, args: Json) =>
    post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } });
  t.match(await call('fly', {}), { body: { error: { code: -32602, message: /there are reset, step/ } } });
  t.match(await call('step', []), { body: { error: { code: -32602 } } });
  t.match(await call('step', { action: 'add' }), { body: { result: { isError: true } } });
  t.match(await post({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params: {} }), {
    body: { error: { code: -32601 } },
  });
  const keys = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`k${i}`, i]));
  t.match(await call('step', keys), { status: 400, body: { error: { code: -32600, message: /2000 keys/ } } });
  t.equal(app.sessions.size, 0);
});

t.test('a batch that cancels its own call is answered', async t => {
  const app = await testApp(t);
  const { headers } = await posting(app)(hello);
  const post = posting(app, { 'mcp-session-id': String(headers['mcp-session-id']) });
  const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } };
  const call = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'observe', arguments: {} } };
  for (const batch of [
    [call, cancel],
    [cancel, call],
  ]) {
    const { status, body } = await post(batch);
    t.equal(status, 200);
    t.match([body].flat(), [{ id: 2, result: { isError: false } }]);
  }
  for (const nothing of [cancel, [cancel], [cancel, cancel]]) t.equal((await post(nothing)).status, 202);
  t.match((await post([{ ...cancel, id: 3 }])).body, { id: 3, error: { code: Number } });
});

t.test('a stream of change events is refused at once', async t => {
  const app = await testApp(t);
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' };
  const reply = await posting(
    app,
    headers,
  )({
    jsonrpc: '2.0',
    id: 1,
    method: 'subscriptions/listen',
    params: { _meta, notifications: { toolsListChanged: true } },
  });
  t.match(reply.body, { error: { code: Number } });
});
