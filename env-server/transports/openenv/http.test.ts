import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { hashToken } from '../access/auth.ts';
import { extras } from './messages.ts';

const COUNTER = '/compat/openenv/test%2FCounter-v0';

/** Asks the counter's routes, under a name where one is given. */
function asking({ ask }: TestApp) {
  const headers = (name?: string): { [header: string]: string } =>
    name === undefined ? {} : { 'x-session-id': name };
  return {
    post: (route: string, body?: Json | string, name?: string) =>
      ask('POST', `${COUNTER}/${route}`, body, headers(name)),
    get: (route: string, name?: string) => ask('GET', `${COUNTER}/${route}`, undefined, headers(name)),
  };
}

/** Asks as a client that keeps cookies, such as one with `requests.Session`. */
function keepingCookies({ ask }: TestApp) {
  let cookie: string | undefined;
  const send = async (method: 'GET' | 'POST', route: string, body?: Json) => {
    const reply = await ask(method, `${COUNTER}/${route}`, body, cookie === undefined ? {} : { cookie });
    const [given] = [reply.headers['set-cookie'] ?? []].flat();
    if (given !== undefined) cookie = String(given).split(';', 1)[0];
    return reply;
  };
  return {
    post: (route: string, body?: Json) => send('POST', route, body),
    get: (route: string) => send('GET', route),
  };
}

t.test('reset, step and state of a client that keeps its cookie', async t => {
  const app = await testApp(t);
  const { get, post } = keepingCookies(app);
  t.same((await get('state')).body, { episode_id: null, step_count: 0 });
  const first = await post('reset', { seed: 5, episode_id: 'mine' });
  t.match(first, {
    status: 200,
    headers: {
      'content-type': /^application\/json/,
      'x-session-id': /^s/,
      'set-cookie':
        /^openenv_session=s[\w-]+; Path=\/compat\/openenv\/test%2FCounter-v0; HttpOnly; SameSite=Strict$/,
    },
    text: /^\{"observation":\{"text":"0\/3 \d+"\},"reward":0\.0,"done":false,"metadata":/,
    body: { metadata: { seed: 5, session_id: first.headers['x-session-id'] } },
  });
  const step = await post('step', { action: { action: 'add' }, timeout_s: 5, request_id: 'r1' });
  t.match(step, {
    status: 200,
    text: /"reward":1\.0,"done":false/,
    body: {
      observation: { text: /^1\/3/ },
      metadata: { step: 1, terminated: false, truncated: false, info: { success: false }, request_id: 'r1' },
    },
  });
  t.match((await get('state')).body, {
    episode_id: 'mine',
    step_count: 1,
    env_id: 'test/Counter-v0',
    return: 1,
    structured: { count: 1 },
  });
  await post('reset');
  t.match((await get('state')).body, { episode_id: /\.2$/, step_count: 0 }, 'the same session continues');
  t.equal(app.sessions.size, 1);
});

t.test('clients that name no session never meet in one', async t => {
  const app = await testApp(t);
  const { get, post } = asking(app);
  const [ann, bob] = [await post('reset', { seed: 1 }), await post('reset', { seed: 2 })];
  const ids = [ann, bob].map(({ headers }) => String(headers['x-session-id']));
  t.not(ids[0], ids[1]);
  const lost = await post('step', { action: { action: 'add' } });
  isProblem(t, lost, 'unknown_session');
  t.match(lost.body.detail, /names no session: .* X-Session-Id of its reply .* or keep its cookie/);
  t.same((await get('state')).body, { episode_id: null, step_count: 0 });
  t.match(await post('step', { action: { action: 'add' } }, ids[0]), { body: { metadata: { step: 1 } } });
  t.match((await get('state', ids[1])).body, { step_count: 0, seed: 2 }, 'nobody stepped it');
  const jars = [keepingCookies(app), keepingCookies(app)];
  for (const jar of jars) await jar.post('reset');
  await jars[0].post('step', { action: { action: 'add' } });
  t.match((await jars[1].get('state')).body, { step_count: 0 });
});

t.test('a cookie counts where there is no header, and names an existing session', async t => {
  const app = await testApp(t);
  const { get, post } = keepingCookies(app);
  const first = await post('reset');
  const id = String(first.headers['x-session-id']);
  const cookie = `openenv_session=${id}`;
  const named = await app.ask('POST', `${COUNTER}/reset`, {}, { cookie, 'x-session-id': 'mine' });
  t.not(named.body.metadata.session_id, id);
  t.equal(named.headers['set-cookie'], undefined);
  await app.ask('DELETE', `/v1/sessions/${id}`);
  isProblem(t, await get('state'), 'session_closed');
  const again = await post('reset');
  t.not(again.body.metadata.session_id, id);
  t.equal(again.headers['x-session-id'], again.body.metadata.session_id, 'the new session under its own id');
  t.match((await get('state')).body, { session_id: again.body.metadata.session_id });
});

t.test('X-Session-Id keeps clients apart, under separate names', async t => {
  const app = await testApp(t);
  const { get, post } = asking(app);
  for (const name of ['a', 'b']) {
    t.match(await post('reset', { seed: 1 }, name), { status: 200, headers: { 'x-session-id': name } });
  }
  await post('step', { action: { action: 'add' } }, 'a');
  t.match((await get('state', 'a')).body, { step_count: 1 });
  t.match((await get('state', 'b')).body, { step_count: 0 });
  t.same((await get('state')).body, { episode_id: null, step_count: 0 });
  const unknown = await post('step', { action: { action: 'add' } }, 'c');
  isProblem(t, unknown, 'unknown_session');
  t.match(unknown.body.detail, /under X-Session-Id c: POST reset first/);
  isProblem(t, await get('state', 'c'), 'unknown_session');
  isProblem(t, await post('step', { action: { action: 'add' } }), 'unknown_session');
});

t.test('X-Session-Id may be the id of a session from any transport', async t => {
  const app = await testApp(t);
  const { get, post } = asking(app);
  const id = await app.open();
  t.match(await post('step', { action: { action: 'add' } }, id), {
    status: 200,
    body: { metadata: { step: 1 } },
  });
  t.match((await get('state', id)).body, { session_id: id, step_count: 1 });
  t.match((await app.ask('GET', `/v1/sessions/${id}`)).body, { step: 1 });
  t.match(await post('reset', {}, id), { body: { metadata: { session_id: id } } });
  const other = await app.open({ env_id: 'test/Slow-v0' });
  isProblem(t, await post('step', { action: { action: 'add' } }, other), 'unknown_session');
});

t.test('resets of one name that come at once open one session', async t => {
  const app = await testApp(t);
  const { post } = asking(app);
  const replies = await Promise.all(Array.from({ length: 5 }, () => post('reset', {}, 'crowd')));
  t.equal(new Set(replies.map(({ body }) => body.metadata.session_id)).size, 1);
  t.equal(app.sessions.size, 1);
});

t.test('sessions expire as all do; a reset begins again', async t => {
  const app = await testApp(t, { idleTtlSeconds: 60 });
  const { get, post } = asking(app);
  for (const name of ['a', 'b']) {
    const { body } = await post('reset', {}, name);
    app.wait(61);
    isProblem(t, await post('step', { action: { action: 'add' } }, name), 'session_expired');
    isProblem(t, await get('state', name), 'session_expired');
    const again = await post('reset', {}, name);
    t.equal(again.status, 200);
    t.not(again.body.metadata.session_id, body.metadata.session_id);
    t.match((await get('state', name)).body, { step_count: 0 });
  }
});

t.test('a name lasts as long as its session, however many sessions others open', async t => {
  const app = await testApp(t, { maxSessions: 2 });
  const { get, post } = asking(app);
  const first = await post('reset', {}, 'mine');
  for (let i = 0; i < 3; i++) {
    for (const name of [undefined, `other ${i}`]) {
      const { body } = await post('reset', {}, name);
      await app.ask('DELETE', `/v1/sessions/${body.metadata.session_id}`);
    }
    t.match(await post('step', { action: { action: 'draw' } }, 'mine'), { status: 200 }, `after ${i}`);
  }
  t.match((await get('state', 'mine')).body, {
    session_id: first.body.metadata.session_id,
    step_count: 3,
  });
  t.equal(app.sessions.size, 1);
});

t.test('a name of an ended session is answered as ended, within a memory for such names', async t => {
  const app = await testApp(t, { maxSessions: 2 });
  const { post } = asking(app);
  const step = (name: string) => post('step', { action: { action: 'add' } }, name);
  const ids: string[] = [];
  for (const name of ['a', 'b']) {
    const { body } = await post('reset', {}, name);
    const id = String(body.metadata.session_id);
    await app.ask('DELETE', `/v1/sessions/${id}`);
    isProblem(t, await step(name), 'session_closed');
    ids.push(id);
  }
  t.equal((await post('reset', {}, ids[0])).status, 200, 'also under the id of the session that was closed');
  await app.ask('DELETE', `/v1/sessions/${(await post('reset', {}, 'c')).body.metadata.session_id}`);
  isProblem(t, await step('a'), 'unknown_session');
  isProblem(t, await step('b'), 'session_closed');
  t.equal((await post('reset', {}, 'b')).status, 200);
  t.equal((await step('b')).status, 200);
  const full = await post('reset', {}, 'd');
  isProblem(t, full, 'too_many_sessions');
  t.equal(full.headers['retry-after'], '1');
});

t.test('wrong requests are answered as by FastAPI: 422 with a list of faults', async t => {
  const named = asking(await testApp(t));
  const post = (route: string, body: Json, name = 'n') => named.post(route, body, name);
  await post('reset', {});
  const step = (action: Json): Json => ({ action });
  const cases: [route: string, body: Json, ...faults: object[]][] = [
    ['reset', [], { type: 'dict_type', loc: ['body'] }],
    ['reset', { seed: -1 }, { type: 'value_error', loc: ['body', 'seed'] }],
    ['reset', { seed: 'one' }, { loc: ['body', 'seed'] }],
    ['reset', { episode_id: 'x'.repeat(256) }, { type: 'string_type', loc: ['body', 'episode_id'] }],
    ['reset', { size: 3 }, { loc: ['body', 'size'], msg: /it knows start/ }],
    ['step', [], { type: 'dict_type', loc: ['body'] }],
    ['step', {}, { type: 'missing', loc: ['body', 'action'] }],
    ['step', step('add'), { type: 'dict_type', loc: ['body', 'action'] }],
    ['step', step({}), { type: 'missing', loc: ['body', 'action', 'action'] }],
    ['step', step({ action: true }), { type: 'value_error', loc: ['body', 'action', 'action'] }],
    [
      'step',
      step({ action: 0, speed: 1 }),
      { type: 'extra_forbidden', loc: ['body', 'action', 'speed'], msg: /known are action, metadata/ },
    ],
    [
      'step',
      { action: { action: 0 }, render: true, timeout_s: 0, request_id: 5 },
      { type: 'extra_forbidden', loc: ['body', 'render'], msg: /known are action, timeout_s, request_id/ },
      { type: 'greater_than', loc: ['body', 'timeout_s'] },
      { type: 'string_type', loc: ['body', 'request_id'] },
    ],
  ];
  for (const [route, body, ...faults] of cases) {
    const reply = await post(route, body);
    t.match(reply, { status: 422, headers: { 'content-type': /^application\/json/ } }, JSON.stringify(body));
    t.match(reply.body, { detail: faults.map(fault => ({ type: String, msg: String, ...fault })) });
    t.same(Object.keys(reply.body), ['detail']);
  }
  t.match((await post('reset', {}, 'x'.repeat(129))).body, {
    detail: [{ type: 'string_too_long', loc: ['header', 'x-session-id'] }],
  });
  t.match(
    await post('step', { action: { action: 'add' } }),
    { body: { metadata: { step: 1 } } },
    'nothing was done',
  );
});

t.test('other problems are problem documents with a text as detail', async t => {
  const app = await testApp(t);
  const { post } = asking(app);
  isProblem(t, await post('reset', '{'), 'bad_json');
  isProblem(
    t,
    await app.ask('POST', `${COUNTER}/reset`, 'seed=1', { 'content-type': 'text/plain' }),
    'unsupported_media_type',
  );
  await post('reset', {}, 'n');
  for (let i = 0; i < 3; i++) await post('step', { action: { action: 'add' } }, 'n');
  isProblem(t, await post('step', { action: { action: 'add' } }, 'n'), 'episode_over');
  for (const route of ['health', 'metadata', 'schema', 'openapi.json']) {
    isProblem(t, await app.ask('GET', `/compat/openenv/Nope-v0/${route}`), 'unknown_environment');
  }
  isProblem(t, await app.ask('POST', '/compat/openenv/Nope-v0/reset', {}), 'unknown_environment');
  isProblem(t, await app.ask('GET', `${COUNTER}/web`), 'not_found');
});

t.test('the routes satisfy OpenEnv’s validator', async t => {
  const app = await testApp(t);
  for (const path of ['/compat/openenv/FrozenLake-v0', COUNTER, '/compat/openenv/test/Counter-v0']) {
    const get = async (route: string) => {
      const { status, body } = await app.ask('GET', `${path}/${route}`);
      t.equal(status, 200);
      return body;
    };
    const openapi = await get('openapi.json');
    t.match(openapi, { info: { version: /^1\./ }, servers: [{ url: path }] });
    t.match(openapi.paths, { '/reset': { post: {} }, '/step': { post: {} }, '/state': { get: {} } });
    t.same(await get('health'), { status: 'healthy' });
    t.match(await get('metadata'), {
      name: /-v0$/,
      description: String,
      version: '0',
      readme_content: String,
    });
    t.match(await get('schema'), { action: { type: 'object' }, observation: {}, state: {} });
    const mcp = await app.ask('POST', `${path}/mcp`, {});
    t.match(mcp, { status: 200, body: { jsonrpc: '2.0', id: null, error: { code: -32600 } } });
  }
});

t.test('a server that goes down is not healthy', async t => {
  const app = await testApp(t);
  app.sessions.shutdown.drain();
  t.match(await app.ask('GET', `${COUNTER}/health`), { status: 503, body: { status: 'unhealthy' } });
});

t.test('the schema of an action says how it is written', async t => {
  const app = await testApp(t);
  const actionOf = async (envId: string) =>
    (await app.ask('GET', `/compat/openenv/${encodeURIComponent(envId)}/schema`)).body.action;
  t.match(await actionOf('test/Counter-v0'), {
    title: 'test/Counter-v0 action', // `Action` alone would make verifiers expect MCP tools only
    required: ['action'],
    properties: {
      action: { anyOf: [{ type: 'integer' }, { enum: ['add', 'draw'] }], description: 'One of add, draw.' },
      metadata: {},
    },
    additionalProperties: false,
    examples: [{ action: 'add' }],
  });
  t.match(await actionOf('Countdown-v0'), { properties: { action: { type: 'string' } } });
  const register = (envId: string, properties: Json) =>
    app.ask('POST', '/v1/envs', {
      env_id: envId,
      definition: {
        kind: 'script',
        title: 'Move',
        instruction: 'Move.',
        action_space: { type: 'Json', schema: { type: 'object', required: ['x'], properties } },
        example_action: { x: 1 },
        source:
          'const reset = () => ({ x: 0 }); const observe = s => String(s.x); const step = (s, a) => ({ state: { x: s.x + a.x } });',
      },
    });
  t.equal((await register('me/Move-v0', { x: { type: 'number' } })).status, 201);
  t.match(await actionOf('me/Move-v0'), {
    title: 'Move action',
    required: ['x'],
    properties: { x: { type: 'number' }, metadata: { type: 'object' } },
  });
  const play = async (envId: string, action: Json) => {
    const headers = { 'x-session-id': 'n' };
    await app.ask('POST', `/compat/openenv/${envId}/reset`, {}, headers);
    return app.ask('POST', `/compat/openenv/${envId}/step`, { action }, headers);
  };
  t.match((await play('me/Move-v0', { x: 2, metadata: { note: 1 } })).body, { observation: { text: '2' } });
  t.match((await play('me/Move-v0', { x: 'far' })).body, {
    detail: [{ loc: ['body', 'action'], msg: /\/x must be number/ }],
  });
  t.match((await play('me/Move-v0', { y: 2 })).body, { detail: [{ loc: ['body', 'action'] }] });
  const own = { x: { type: 'number' }, metadata: { type: 'string' } };
  t.equal((await register('me/Noted-v0', own)).status, 201);
  t.match(await actionOf('me/Noted-v0'), { properties: { metadata: { type: 'string' } } });
  t.match((await play('me/Noted-v0', { x: 2, metadata: 'mine' })).body, { observation: { text: '2' } });
});

t.test(
  'tokens: as bearer, or as the password of the address; sessions belong to them; health is open',
  async t => {
    const token = (name: string, scopes: string[]) => ({ name, sha256: hashToken(name), scopes });
    const app = await testApp(t, {
      tokens: JSON.stringify([token('ann', ['play']), token('bob', ['play']), token('reg', ['register'])]),
    });
    const headers = (authorization: string, name = 'n') => ({ authorization, 'x-session-id': name });
    const basic = (password: string) => `Basic ${Buffer.from(`any:${password}`).toString('base64')}`;
    const reset = (authorization: string, name?: string) =>
      app.ask('POST', `${COUNTER}/reset`, {}, headers(authorization, name));
    isProblem(t, await app.ask('POST', `${COUNTER}/reset`, {}), 'unauthorized');
    isProblem(t, await reset(basic('eve')), 'unauthorized');
    isProblem(t, await reset('Bearer reg'), 'forbidden');
    isProblem(t, await app.ask('GET', `${COUNTER}/schema`), 'unauthorized');
    isProblem(
      t,
      await app.ask('GET', '/v1/envs', undefined, { authorization: basic('ann') }),
      'unauthorized',
    );
    t.same((await app.ask('GET', `${COUNTER}/health`)).body, { status: 'healthy' });
    const ann = await reset(basic('ann'));
    const bob = await reset('Bearer bob');
    t.not(ann.body.metadata.session_id, bob.body.metadata.session_id);
    const taken = await app.ask(
      'POST',
      `${COUNTER}/step`,
      { action: { action: 'add' } },
      headers('Bearer bob', String(ann.body.metadata.session_id)),
    );
    isProblem(t, taken, 'unknown_session');
  },
);

t.test('a body with very many unknown fields gets the first of them back, not all', t => {
  const given = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`k${i}`, 1]));
  t.equal(extras({ action: 0, ...given }, ['action']).length, 8);
  t.end();
});
