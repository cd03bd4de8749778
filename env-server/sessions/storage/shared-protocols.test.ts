import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Reply, TestApp } from '../../../test/app.test-data.ts';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import { Problem } from '../../problems.ts';
import { lacksValkey, testValkey } from '../../store/valkey.test-data.ts';
import type { SharedSessions } from './shared-sessions.ts';

/** Clients of other protocols behind a load balancer that sends each request to another server than the one before. */

const COUNTER = 'test%2FCounter-v0';

interface Balanced {
  readonly a: TestApp;
  readonly b: TestApp;
  /** Asks the next server. */
  ask: TestApp['ask'];
  /** `fetch` that asks the next server, where the address names the first. */
  readonly fetch: typeof fetch;
  /** Number of requests that each server has got. */
  readonly counts: readonly [number, number];
}

async function balanced(t: Test): Promise<Balanced> {
  const { address: store } = await testValkey(t);
  const [a, b] = [await listening(t, { store }), await listening(t, { store })];
  const counts: [number, number] = [0, 0];
  let turn = 0;
  const next = (): TestApp => {
    const which = turn++ % 2;
    counts[which]++;
    return which === 0 ? a : b;
  };
  return {
    a,
    b,
    counts,
    ask: (...request) => next().ask(...request),
    fetch: (input, init) => {
      const url = new URL(String(input));
      url.host = hostOf(next());
      return fetch(url, init);
    },
  };
}

/** The official client of MCP. */
async function mcpClient(t: Test, both: Balanced, path: string, mode: 'legacy' | 'auto') {
  const transport = new StreamableHTTPClientTransport(new URL(`http://${hostOf(both.a)}${path}`), {
    fetch: both.fetch,
  });
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  t.teardown(() => client.close());
  await client.connect(transport);
  const call = async (name: string, args: JsonObject = {}) =>
    (await client.callTool({ name, arguments: { ...args } })) as unknown as {
      readonly isError?: boolean;
      readonly structuredContent: JsonObject;
    };
  return { client, transport, call };
}

/** Open sessions by the list of each server. */
async function openAt({ a, b }: Balanced): Promise<readonly number[]> {
  const lists = await Promise.all([a, b].map(app => app.ask('GET', '/v1/sessions')));
  return lists.map(({ body }) => (body.sessions as unknown as unknown[]).length);
}

for (const path of [`/mcp/${COUNTER}`, `/compat/openenv/${COUNTER}/mcp`])
  t.test(
    `a client of MCP that says initialize plays at two servers: ${path}`,
    { skip: lacksValkey },
    async t => {
      const both = await balanced(t);
      const { client, transport, call } = await mcpClient(t, both, path, 'legacy');
      t.match(transport.sessionId, /^s/);
      t.same(await openAt(both), [1, 1]);
      const { tools } = await client.listTools();
      t.ok(tools.length > 0);
      const step = tools.some(({ name }) => name === 'step') ? 'step' : tools[0].name;
      for (let n = 1; n <= 3; n++) {
        const { isError, structuredContent } = await call(step, { action: 'add' });
        t.notOk(isError, `step ${n}`);
        t.match(structuredContent, { reward: 1 });
      }
      const sessionId = transport.sessionId!;
      t.ok(Math.min(...both.counts) >= 3, `${both.counts}`);
      await transport.terminateSession();
      t.same(await openAt(both), [0, 0]);
      const headers = { 'mcp-session-id': sessionId };
      const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
      for (let n = 0; n < 2; n++) t.equal((await both.ask('POST', path, list, headers)).status, 404);
    },
  );

t.test(
  'a client of MCP 2026-07-28 names its session in calls to two servers',
  { skip: lacksValkey },
  async t => {
    const both = await balanced(t);
    const { client, call } = await mcpClient(t, both, `/mcp/${COUNTER}`, 'auto');
    t.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
    const { session_id } = (await call('reset', { seed: 3, config: { goal: 4 } })).structuredContent;
    for (let n = 1; n <= 4; n++)
      t.match(await call('step', { session_id, action: 'add' }), {
        structuredContent: { step: n, terminated: n === 4 },
      });
    t.match(await call('observe', { session_id }), { structuredContent: { return: 4 } });
    t.match(await call('reset', { session_id, seed: 4 }), { structuredContent: { seed: 4, step: 0 } });
    t.match(await call('close_session', { session_id }), { structuredContent: { closed: true } });
    for (let n = 0; n < 2; n++)
      t.match(await call('observe', { session_id }), {
        isError: true,
        structuredContent: { code: 'session_closed' },
      });
    t.same(await openAt(both), [0, 0]);
  },
);

/** Output of a call of the Open Reward Standard, which comes as events. */
function outputOf({ text }: Reply): Json {
  const data = [...text.matchAll(/^event: (?:chunk|end)\ndata: (.*)$/gm)].map(([, part]) => part);
  return JSON.parse(data.join(''));
}

t.test('an episode of the Open Reward Standard is played at two servers', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const begun = await both.ask('POST', '/create_session', {});
  const { sid } = outputOf(begun) as { sid: string };
  const headers = { 'x-session-id': sid };
  const post = (path: string, body: Json = {}) => both.ask('POST', path, body, headers);
  const call = (action: string, task_id: string) =>
    post(`/${COUNTER}/call`, { name: 'step', input: { action }, task_id });
  const task = { env_name: 'test/Counter-v0', task_spec: { seed: 1 } };
  t.equal((await post('/create', task)).status, 200);
  t.equal((await post('/create', task)).status, 200, 'again, at the other: it begins nothing');
  t.same(await openAt(both), [1, 1]);
  t.equal((await post('/create', { ...task, task_spec: { seed: 2 } })).status, 400);
  for (const path of ['prompt', 'task_tools'])
    t.equal((await both.ask('GET', `/${COUNTER}/${path}`, undefined, headers)).status, 200, path);
  for (let n = 1; n <= 2; n++)
    for (const at of ['one', 'the other'])
      t.match(outputOf(await call('add', `c${n}`)), { ok: true, output: { metadata: { step: n } } }, at);
  t.match(outputOf(await call('add', 'c3')), { output: { finished: true } });
  t.match(outputOf(await call('add', 'c4')), { ok: false });
  for (let n = 0; n < 2; n++) t.equal((await post('/ping')).status, 200);
  t.equal((await post('/delete')).status, 200);
  t.same(await openAt(both), [0, 0]);
  for (let n = 0; n < 2; n++) t.ok((await post('/ping')).status >= 404, 'it has ended at both');
  for (let n = 0; n < 2; n++) t.equal((await post('/create', task)).status, 400, 'and does not begin again');
});

t.test('a rollout of NeMo Gym is played at two servers', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const at = `/compat/nemo-gym/${COUNTER}`;
  const seeded = await both.ask('POST', `${at}/seed_session`, { seed: 1 });
  const [cookie] = String(seeded.headers['set-cookie']).split(';');
  const post = (route: string, body: Json) => both.ask('POST', `${at}/${route}`, body, { cookie });
  for (let n = 1; n <= 2; n++) t.match((await post('step', { action: 'add' })).text, new RegExp(`^${n}/3`));
  const verified = await post('verify', {});
  t.match(verified.body, { reward: 2, mask_sample: false });
  t.same(await openAt(both), [0, 0]);
  await both.ask('GET', '/livez');
  t.same((await post('verify', {})).body, verified.body, 'again, at the same');
  t.match((await post('verify', {})).body, { mask_sample: true }, 'the other only knows that it has ended');
});

t.test('OpenEnv finds the session of a name at every server', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const at = `/compat/openenv/${COUNTER}`;
  const name = { 'x-session-id': 'mine' };
  const post = (route: string, body: Json = {}) => both.ask('POST', `${at}/${route}`, body, name);
  const act = () => post('step', { action: { action: 'add' } });
  const state = async () => (await both.ask('GET', `${at}/state`, undefined, name)).body;
  t.equal((await post('reset')).status, 200);
  for (let n = 1; n <= 3; n++) t.match(await act(), { status: 200, body: { metadata: { step: n } } });
  t.match([await state(), await state()], [{ step_count: 3 }, { step_count: 3 }]);
  const before = String((await state()).session_id);
  t.equal((await post('reset')).status, 200);
  t.match([await state(), await state()], [{ step_count: 0 }, { step_count: 0, session_id: before }]);
  t.same(await openAt(both), [1, 1]);
  await both.ask('DELETE', `/v1/sessions/${before}`);
  for (let n = 0; n < 2; n++) t.equal((await act()).status, 410);
  t.equal((await post('reset')).status, 200);
  for (let n = 1; n <= 2; n++)
    t.match(await act(), { body: { metadata: { step: n } } }, 'the name begins again');
  t.not((await state()).session_id, before);
  t.same(await openAt(both), [1, 1]);
});

t.test(
  'resets under one name that come at once at two servers open one session',
  { skip: lacksValkey },
  async t => {
    const both = await balanced(t);
    const at = `/compat/openenv/${COUNTER}`;
    // A name begins again three times, after its session was closed.
    for (let n = 0; n < 12; n++) {
      const name = { 'x-session-id': `n${n % 3}` };
      const resets = Array.from({ length: 4 }, () => both.ask('POST', `${at}/reset`, {}, name));
      for (const { status, text } of await Promise.all(resets)) t.equal(status, 200, text);
      const states = [both.a, both.b].map(app => app.ask('GET', `${at}/state`, undefined, name));
      const [one, two] = (await Promise.all(states)).map(({ body }) => body.session_id);
      t.equal(one, two);
      t.same(await openAt(both), [1, 1]);
      await both.ask('DELETE', `/v1/sessions/${one}`);
    }
  },
);

t.test('a reset leaves no session if the store does not take its name', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const { store } = both.a.sessions.recorder as SharedSessions;
  const fault = new Problem('storage_failed', 'the store does not answer');
  const replaceReply = store.replaceReply.bind(store);
  store.replaceReply = () => Promise.reject(fault);
  const reset = () => both.a.ask('POST', `/compat/openenv/${COUNTER}/reset`, {}, { 'x-session-id': 'mine' });
  t.ok((await reset()).status >= 500);
  t.same(await openAt(both), [0, 0]);
  store.replaceReply = replaceReply;
  t.equal((await reset()).status, 200);
  t.same(await openAt(both), [1, 1]);
});

t.test(
  'OpenEnv finds the session of a cookie and of a socket at every server',
  { skip: lacksValkey },
  async t => {
    const both = await balanced(t);
    const at = `/compat/openenv/${COUNTER}`;
    const { headers } = await both.ask('POST', `${at}/reset`, {});
    const cookie = String([headers['set-cookie']].flat()[0]).split(';', 1)[0];
    for (let n = 1; n <= 2; n++)
      t.match(await both.ask('POST', `${at}/step`, { action: { action: 'add' } }, { cookie }), {
        body: { metadata: { step: n } },
      });
    const id = String(headers['x-session-id']);
    for (const [n, app] of [both.a, both.b].entries()) {
      const wire = await dial(t, app, `${at}/ws?session_id=${id}`);
      wire.send({ type: 'state' });
      t.match(await wire.next(), { type: 'state', data: { step_count: 2 + n } });
      t.match(await both.ask('POST', `${at}/step`, { action: { action: 'draw' } }, { cookie }), {
        status: 200,
      });
    }
  },
);

t.test('JSON-RPC of OpenEnv plays its session at two servers', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const call = async (method: string, params: JsonObject) =>
    (await both.ask('POST', `/compat/openenv/${COUNTER}/mcp`, { jsonrpc: '2.0', id: 1, method, params }))
      .body;
  const { session_id } = (await call('openenv/session/create', {})).result as unknown as {
    session_id: string;
  };
  for (let n = 1; n <= 3; n++)
    t.match(await call('tools/call', { name: 'act', arguments: { action: 'add' }, session_id }), {
      result: { data: { metadata: { step: n } } },
    });
  t.match(await call('openenv/session/close', { session_id }), { result: { closed: true } });
  for (let n = 0; n < 2; n++)
    t.match(await call('tools/call', { name: 'act', arguments: { action: 'add' }, session_id }), {
      error: { code: -32602 },
    });
  t.same(await openAt(both), [0, 0]);
});

t.test('an instance of gym-http-api is played at two servers', { skip: lacksValkey }, async t => {
  const both = await balanced(t);
  const at = '/compat/gym/v1/envs/';
  const id = String((await both.ask('POST', at, { env_id: 'test/Counter-v0' })).body.instance_id);
  for (let n = 0; n < 2; n++)
    t.same((await both.ask('GET', at)).body, { all_envs: { [id]: 'test/Counter-v0' } });
  t.equal((await both.ask('POST', `${at}${id}/reset/`, {})).status, 200);
  for (let n = 1; n <= 3; n++)
    t.match(await both.ask('POST', `${at}${id}/step/`, { action: 0 }), {
      body: { reward: 1, done: n === 3 },
    });
  t.equal((await both.ask('POST', `${at}${id}/close/`, {})).status, 204);
  for (let n = 0; n < 2; n++) t.ok((await both.ask('POST', `${at}${id}/reset/`, {})).status >= 400);
  t.same(await openAt(both), [0, 0]);
});
