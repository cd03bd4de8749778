import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import { isProblem, type Reply, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { hashToken } from '../access/auth.ts';
import { resultEvents } from './sessions.ts';

type Headers = { [header: string]: string };

const COUNTER = '/test%2FCounter-v0';

/** The events of a reply. */
function eventsOf({ text }: Pick<Reply, 'text'>): [name: string, data: string][] {
  return text
    .split('\n\n')
    .filter(part => part.startsWith('event: '))
    .map(part => {
      const [name, data] = part.split('\n');
      return [name.slice('event: '.length), data.slice('data: '.length)];
    });
}

/** Output of a call. */
function outputOf(reply: Reply) {
  const events = eventsOf(reply);
  const parts = events.filter(([name]) => name === 'chunk' || name === 'end').map(([, data]) => data);
  return JSON.parse(parts.join(''));
}

/** Speaks as a client with one session. */
async function client({ ask }: Pick<TestApp, 'ask'>, more: { [header: string]: string } = {}) {
  const [[, sid]] = eventsOf(await ask('POST', '/create_session', {}, more));
  const headers = { ...more, 'x-session-id': sid };
  return {
    sid,
    post: (path: string, body: Json = {}) => ask('POST', path, body, headers),
    get: (path: string) => ask('GET', path, undefined, headers),
    call: (name: string, input: Json = {}, extra: { [key: string]: Json } = {}, env = COUNTER) =>
      ask('POST', `${env}/call`, { name, input, ...extra }, headers),
  };
}

t.test('an episode from its task to its end', async t => {
  const app = await testApp(t);
  t.same(JSON.parse((await app.ask('GET', '/list_environments')).text).includes('test/Counter-v0'), true);
  t.same((await app.ask('GET', '/health')).body, { status: 'ok' });
  for (const prefix of [COUNTER, '/test/Counter-v0', `/compat/ors${COUNTER}`]) {
    const tools = await app.ask('GET', `${prefix}/tools`);
    t.same(
      (tools.body.tools as unknown as { name: string }[]).map(({ name }) => name),
      ['step', 'observe', 'valid_actions'],
      prefix,
    );
  }
  const { post, get, call } = await client(app);
  t.match((await post('/create', { env_name: 'test/Counter-v0', task_spec: { seed: 7 } })).body, {
    sid: String,
  });
  const [task, seen] = JSON.parse((await get(`${COUNTER}/prompt`)).text);
  t.match(task, { type: 'text', text: /^Count to 3\./, detail: null });
  t.match(seen, { type: 'text', text: /^0\/3 / });
  const step = await call('step', { action: 'add' });
  t.match(step.headers, { 'content-type': /^text\/event-stream/ });
  t.equal(eventsOf(step)[0][0], 'task_id');
  t.match(outputOf(step), {
    ok: true,
    output: {
      blocks: [{ type: 'text', text: /^1\/3/, detail: null }, { text: /^Reward: 1/ }],
      reward: 1,
      finished: false,
      metadata: { step: 1, terminated: false },
    },
  });
  t.match(outputOf(await call('observe')), { ok: true, output: { reward: null, finished: false } });
  t.match(outputOf(await call('fly')), {
    ok: false,
    error: "'fly' is not a valid tool; there are step, observe, valid_actions",
  });
  t.match(outputOf(await call('reset')), { ok: false }, 'a task begins an episode, not a tool');
  t.match(outputOf(await call('step', { move: 1 })), { ok: false, error: /action/ });
  await call('step', { action: 'add' });
  t.match(outputOf(await call('step', { action: 'add' })), { output: { reward: 1, finished: true } });
  t.match(outputOf(await call('step', { action: 'add' })), { ok: false, error: /terminated/ });
  t.match((await post('/ping')).body, { status: 'ok' });
  t.match((await post('/delete')).body, { sid: String });
  t.match((await post('/delete_session')).status, 200);
  isProblem(t, await post('/ping'), 'unknown_session');
  t.equal(app.sessions.size, 0);
});

t.test('tasks are the seeds of splits that never meet', async t => {
  const { ask } = await testApp(t);
  t.same(JSON.parse((await ask('GET', `${COUNTER}/splits`)).text), [
    { name: 'train', type: 'train' },
    { name: 'validation', type: 'validation' },
    { name: 'test', type: 'test' },
  ]);
  t.same((await ask('POST', `${COUNTER}/num_tasks`, { split: 'test' })).body, { num_tasks: 1000 });
  const { body } = await ask('POST', `${COUNTER}/tasks`, { split: 'test' });
  t.equal((body.tasks as unknown as unknown[]).length, 1000);
  t.same((await ask('POST', `${COUNTER}/task_range`, { split: 'train', start: 3, stop: 5 })).body, {
    tasks: [{ seed: 3 }, { seed: 4 }],
  });
  t.same((await ask('POST', `${COUNTER}/task_range`, { split: 'test', start: -1, stop: null })).body, {
    tasks: [{ seed: 2_000_999 }],
  });
  const openenv = '/compat/openenv/test%2FCounter-v0';
  t.same((await ask('POST', `${openenv}/num_tasks`, { split: 'test' })).body, { num_tasks: 1000 });
  t.equal((await ask('GET', `${openenv}/splits`)).status, 200, 'task routes of OpenEnv');
  t.equal((await ask('GET', `${openenv}/metadata`)).status, 200, 'next to its own');
  isProblem(t, await ask('POST', `${COUNTER}/tasks`, { split: 'none' }), 'bad_request');
  isProblem(t, await ask('POST', `${COUNTER}/task`, { split: 'test', index: 1000 }), 'bad_request');
  isProblem(t, await ask('POST', `${COUNTER}/task`, { split: 'test', index: 0, more: 1 }), 'invalid_request');
});

t.test('an environment named by X-Deployment, or by the address', async t => {
  const app = await testApp(t);
  isProblem(t, await app.ask('GET', '/tools'), 'bad_request');
  const broken = Buffer.from('%zz-v1:').toString('base64');
  isProblem(
    t,
    await app.ask('GET', '/tools', undefined, { authorization: `Basic ${broken}` }),
    'bad_request',
  );
  const address = Buffer.from('test%2FCounter-v0:').toString('base64');
  const named: Headers[] = [{ 'x-deployment': 'test/Counter-v0' }, { authorization: `Basic ${address}` }];
  for (const headers of named) {
    t.equal((await app.ask('GET', '/tools', undefined, headers)).status, 200);
    const { post, get } = await client(app, headers);
    t.equal((await post('/create', { split: 'train', index: 0 })).status, 200);
    t.equal((await get('/prompt')).status, 200);
    t.match(outputOf(await post('/call', { name: 'step', input: { action: 'add' } })), { ok: true });
  }
});

t.test('requests in the wrong order or form', async t => {
  const app = await testApp(t);
  const { post, get, call, sid } = await client(app);
  isProblem(t, await get(`${COUNTER}/prompt`), 'unknown_session');
  isProblem(t, await call('step', { action: 'add' }), 'unknown_session');
  isProblem(t, await app.ask('POST', '/ping'), 'bad_request');
  isProblem(t, await app.ask('POST', '/ping', {}, { 'x-session-id': 'a b' }), 'bad_request');
  const counter = { env_name: 'test/Counter-v0' };
  isProblem(t, await post('/create', counter), 'invalid_request');
  isProblem(
    t,
    await post('/create', { ...counter, task_spec: {}, split: 'test', index: 1 }),
    'invalid_request',
  );
  isProblem(t, await post('/create', { ...counter, task_spec: {}, split: 'test' }), 'invalid_request');
  isProblem(t, await post('/create', { ...counter, task_spec: { count: 5 } }), 'invalid_request');
  isProblem(t, await post('/create', { env_name: 'None-v0', task_spec: {} }), 'unknown_environment');
  const created = { ...counter, task_spec: { seed: 1 } };
  t.same((await post('/create', created)).body, { sid });
  t.same((await post('/create', created)).body, { sid }, 'the same request again begins nothing');
  t.equal(app.sessions.size, 1);
  isProblem(t, await post('/create', { ...counter, task_spec: { seed: 2 } }), 'bad_request');
  isProblem(t, await call('step', {}, {}, '/test%2FSlow-v0'), 'unknown_session');
  isProblem(t, await app.ask('POST', `${COUNTER}/call`, '{', { 'x-session-id': sid }), 'bad_json');
  isProblem(t, await app.ask('POST', '/Nowhere/call', {}), 'not_found');
  isProblem(t, await app.ask('GET', `${COUNTER}/call`), 'method_not_allowed');
  const octets = { 'x-session-id': sid, 'content-type': 'application/octet-stream' };
  t.equal((await app.ask('POST', '/ping', '', octets)).status, 200, 'as the Python clients send it');
  isProblem(t, await app.ask('POST', '/ping', 'x', octets), 'unsupported_media_type');
  await post('/delete');
  isProblem(t, await post('/create', created), 'bad_request');
});

t.test('a call that is requested again under its id is carried out once', async t => {
  const app = await testApp(t);
  const { post, call } = await client(app);
  await post('/create', { env_name: 'test/Counter-v0', task_spec: { seed: 1 } });
  const once = outputOf(await call('step', { action: 'add' }, { task_id: 'call-1' }));
  t.same(outputOf(await call('step', { action: 'add' }, { task_id: 'call-1' })), once);
  t.match(outputOf(await call('step', { action: 'add' }, { task_id: 'call-2' })), {
    output: { metadata: { step: 2 } },
  });
});

t.test('a long call announces its id; who hangs up finds its result later', async t => {
  const app = await testApp(t);
  const slow = '/test%2FSlow-v0';
  const { post, call, sid } = await client(app);
  await post('/create', { env_name: 'test/Slow-v0', task_spec: { seed: 1 } });
  const { port } = app.server.server.address() as { port: number };
  const hangUp = new AbortController();
  const reply = await fetch(`http://127.0.0.1:${port}${slow}/call`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-session-id': sid },
    body: JSON.stringify({ name: 'step', input: { action: 'add' } }),
    signal: hangUp.signal,
  });
  const { value } = await reply.body!.getReader().read();
  const [[name, id]] = eventsOf({ text: new TextDecoder().decode(value) });
  t.equal(name, 'task_id');
  hangUp.abort();
  const again = call('step', { action: 'add' }, { task_id: id }, slow);
  await until(() => waiting.length > 0);
  waiting.shift()!();
  t.match(outputOf(await again), { output: { metadata: { step: 1 }, reward: 1 } });
  const late = call('step', { action: 'add' }, {}, slow);
  await until(() => waiting.length > 0);
  setTimeout(() => waiting.shift()!(), 100);
  t.match(outputOf(await late), { output: { metadata: { step: 2 } } }, 'streamed to its end');
});

t.test('faults of an environment end the stream with an error', async t => {
  const app = await testApp(t);
  const faulty = '/test%2FFaulty-v0';
  const { post, call } = await client(app);
  await post('/create', { env_name: 'test/Faulty-v0', task_spec: {} });
  const [, failed] = eventsOf(await call('step', { action: 'throw' }, {}, faulty));
  t.equal(failed[0], 'error');
  t.match(failed[1], /test\/Faulty-v0/);
});

t.test('tokens come as X-API-Key, Bearer or password; sessions belong to them', async t => {
  const tokens = ['one', 'two'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] }));
  const app = await testApp(t, { tokens: JSON.stringify(tokens) });
  isProblem(t, await app.ask('GET', '/list_environments'), 'unauthorized');
  t.equal((await app.ask('GET', '/health')).status, 200);
  const basic = Buffer.from('any:one').toString('base64');
  const given: Headers[] = [
    { 'x-api-key': 'one' },
    { authorization: 'Bearer one' },
    { authorization: `Basic ${basic}` },
  ];
  for (const headers of given) {
    t.equal((await app.ask('GET', '/list_environments', undefined, headers)).status, 200);
  }
  isProblem(t, await app.ask('GET', '/v1/envs', undefined, { 'x-api-key': 'one' }), 'unauthorized');
  const { post, sid } = await client(app, { 'x-api-key': 'one' });
  await post('/create', { env_name: 'test/Counter-v0', task_spec: {} });
  const stranger = { 'x-api-key': 'two', 'x-session-id': sid };
  isProblem(t, await app.ask('POST', '/ping', {}, stranger), 'unknown_session');
});

t.test('limits hold as everywhere', async t => {
  const app = await testApp(t, { maxSessions: 1, bodyLimitBytes: 2000 });
  const create = { env_name: 'test/Counter-v0', task_spec: {} };
  const first = await client(app);
  t.equal((await first.post('/create', create)).status, 200);
  const full = await (await client(app)).post('/create', create);
  isProblem(t, full, 'too_many_sessions');
  t.match(full.headers, { 'retry-after': String });
  isProblem(t, await first.call('step', { action: 'a'.repeat(3000) }), 'body_too_large');
});

t.test('long results come in parts that clients can put together', async t => {
  const text = JSON.stringify({ spaces: `${' '.repeat(5000)}x`, emoji: '🙂'.repeat(3000) });
  const events = resultEvents(text).map(event => event.split('\n')[1].slice('data: '.length));
  t.same(JSON.parse(events.map(data => data.trimStart()).join('')), JSON.parse(text));
  t.ok(events.every(data => data.isWellFormed()));
  t.ok(events.length > 2);
});
