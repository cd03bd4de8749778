import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import { type TestApp, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { hashToken } from '../access/auth.ts';

const ENVS = '/compat/gym/v1/envs/';

/** Asks as the Python client of gym-http-api does: with a content type always, with `null` where there is no body. */
function client({ ask }: Pick<TestApp, 'ask'>) {
  const headers = { 'content-type': 'application/json' };
  const post = (route: string, body: Json) => ask('POST', `${ENVS}${route}`, JSON.stringify(body), headers);
  const get = (route: string) => ask('GET', `${ENVS}${route}`, undefined, headers);
  return {
    post,
    get,
    async make(body: { readonly [key: string]: Json }) {
      const reply = await post('', body);
      if (reply.status !== 200) throw new Error(reply.text);
      return String(reply.body.instance_id);
    },
  };
}

const COUNTER = { env_id: 'test/Counter-v0' };

t.test('an instance is made, reset, stepped and closed', async t => {
  const app = await testApp(t);
  const { get, make, post } = client(app);
  const id = await make({ ...COUNTER, seed: 5 });
  t.same((await get('')).body, { all_envs: { [id]: 'test/Counter-v0' } });
  const reset = await post(`${id}/reset/`, null);
  t.same(Object.keys(reset.body), ['observation']);
  t.match(reset.body.observation, /^0\/3 /);
  const step = await post(`${id}/step/`, { action: 0, render: false });
  t.equal(step.status, 200);
  t.match(step.headers['content-type'], /^application\/json/);
  t.match(step.text, /"reward":1\.0,"done":false/, 'the reward is a floating-point number to every client');
  t.match(step.body, { observation: /^1\/3 /, info: { success: false, action_is_valid: true } });
  await post(`${id}/step/`, { action: 'add' });
  t.match((await post(`${id}/step/`, { action: 'add' })).body, { done: true, info: { success: true } });
  const closed = await post(`${id}/close/`, null);
  t.match(closed, { status: 204, text: '' });
  t.same((await get('')).body, { all_envs: {} });
  t.equal(app.sessions.size, 0);
});

t.test('routes work without the slash at their end', async t => {
  const app = await testApp(t);
  const { ask } = app;
  const { body } = await ask('POST', '/compat/gym/v1/envs', COUNTER);
  t.equal((await ask('GET', '/compat/gym/v1/envs')).status, 200);
  t.equal((await ask('POST', `${ENVS}${body.instance_id}/reset`)).status, 200);
});

t.test('an instance made with a seed is the same to its end', async t => {
  const app = await testApp(t);
  const { make, post } = client(app);
  const life = async (seed: number | null) => {
    const id = await make({ ...COUNTER, seed });
    const seen: unknown[] = [];
    for (let episode = 0; episode < 3; episode++) {
      seen.push((await post(`${id}/reset/`, null)).text);
      seen.push((await post(`${id}/step/`, { action: 'draw' })).text);
    }
    t.equal(new Set(seen).size, seen.length, 'its episodes differ');
    return seen;
  };
  t.same(await life(7), await life(7));
  t.notSame(await life(7), await life(8));
  t.notSame(await life(null), await life(null));
});

t.test('a time limit is reported as in gym', async t => {
  const { make, post } = client(await testApp(t));
  const id = await make(COUNTER);
  for (let i = 0; i < 4; i++) await post(`${id}/step/`, { action: 'draw' });
  t.match((await post(`${id}/step/`, { action: 'draw' })).body, {
    done: true,
    info: { success: false, 'TimeLimit.truncated': true },
  });
});

t.test('the list holds all instances', async t => {
  const app = await testApp(t);
  await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 1003 });
  const { body } = await client(app).get('');
  t.equal(Object.keys(body.all_envs).length, 1003);
});

t.test('the action space: its form, samples, members', async t => {
  const { get, make } = client(await testApp(t));
  const id = await make(COUNTER);
  t.same((await get(`${id}/action_space/`)).body, { info: { name: 'Discrete', n: 2 } });
  const drawn = new Set<unknown>();
  while (drawn.size < 2) drawn.add((await get(`${id}/action_space/sample`)).body.action);
  t.same([...drawn].sort(), [0, 1]);
  const members: [text: string, member: boolean][] = [
    ['0', true],
    ['1', true],
    ['2', false],
    ['-1', false],
    ['add', true],
    ['jump', false],
    ['%22add%22', true],
    ['1.5', false],
  ];
  for (const [text, member] of members) {
    t.same((await get(`${id}/action_space/contains/${text}`)).body, { member }, text);
  }
});

t.test('actions count from 0 for clients that know only n', async t => {
  const app = await testApp(t);
  const { get, make, post } = client(app);
  const env = { env_id: 'FrozenLake-v0', seed: 3 };
  const id = await make(env);
  t.same((await get(`${id}/action_space/`)).body, { info: { name: 'Discrete', n: 4 } });
  const { n } = (await get(`${id}/action_space/`)).body.info as unknown as { n: number };
  const drawn = new Set<unknown>();
  while (drawn.size < n) drawn.add((await get(`${id}/action_space/sample`)).body.action);
  t.same([...drawn].sort(), [0, 1, 2, 3], 'samples');
  for (const [x, member] of [
    ['0', true],
    ['3', true],
    ['4', false],
    ['-1', false],
    ['Up', true],
  ] as const) {
    t.same((await get(`${id}/action_space/contains/${x}`)).body, { member }, x);
  }
  const played = async (action: Json) => {
    const instance = await make(env);
    await post(`${instance}/reset/`, null);
    return (await post(`${instance}/step/`, { action })).body;
  };
  const names = ['Left', 'Down', 'Right', 'Up'];
  for (const [action, name] of names.entries()) {
    const result = await played(action);
    t.match(result, { info: { action_is_valid: true } }, `${action} is in the space`);
    t.same(result, await played(name), `${action} is ${name}`);
  }
  for (const action of [4, -1, 0.5]) t.match(await played(action), { info: { action_is_valid: false } });
});

t.test('spaces of every type are described and sampled where that makes sense', async t => {
  const { get, make } = client(await testApp(t));
  const faulty = await make({ env_id: 'test/Faulty-v0' });
  t.same((await get(`${faulty}/action_space/`)).body, {
    info: { name: 'Text', min_length: 0, max_length: 100, charset: null },
  });
  t.same((await get(`${faulty}/action_space/contains/anything`)).body, { member: true });
  const refused = await get(`${faulty}/action_space/sample`);
  t.match(refused, {
    status: 400,
    body: { message: /has no random actions; an action is, for example, "add"/ },
  });
  const countdown = await make({ env_id: 'Countdown-v0' });
  const sampled = await get(`${countdown}/action_space/sample`);
  t.match(sampled, { status: 200, body: { action: String } }, 'by the random player');
  const sudoku = await make({ env_id: 'Sudoku-v0' });
  t.match((await get(`${sudoku}/action_space/`)).body, { info: { name: String } });
  t.equal((await get(`${sudoku}/action_space/sample`)).status, 200);
});

t.test('the observation space: its form and what it is claimed to be', async t => {
  const { get, make, post } = client(await testApp(t));
  const id = await make(COUNTER);
  const info = { name: 'Text', min_length: 0, max_length: 100, charset: null };
  t.same((await get(`${id}/observation_space/`)).body, { info });
  const member = async (claims: Json) => (await post(`${id}/observation_space/contains`, claims)).body.member;
  t.equal(await member({ name: 'Text' }), true);
  t.equal(await member(info), true);
  t.equal(await member({ name: 'Text', max_length: 5 }), false);
  t.equal(await member({ shape: [4] }), false);
});

t.test('errors are those of gym-http-api: 400 and a message', async t => {
  const app = await testApp(t, { idleTtlSeconds: 60, bodyLimitBytes: 2000 });
  const { get, make, post } = client(app);
  const id = await make(COUNTER);
  const gone = await make(COUNTER);
  await post(`${gone}/close/`, null);
  const cases: [reply: Promise<{ status: number; body: object }>, message: RegExp][] = [
    [post('', null), /^Request is not a valid json$/],
    [post('', []), /^Request is not a valid json$/],
    [app.ask('POST', ENVS, '{'), /^Request is not a valid json: /],
    [post('', {}), /^A required request parameter 'env_id' was not provided$/],
    [post('', { env_id: '' }), /^A required request parameter 'env_id' was not provided$/],
    [post('', { env_id: 'CartPole-v0' }), /^Attempted to look up malformed environment ID 'CartPole-v0'/],
    [post('', { env_id: 5 }), /env_id/],
    [post('', { ...COUNTER, seed: -1 }), /seed must be >= 0/],
    [post('', { env_id: 'test/Held-v0', seed: 1 }), /takes no seed/],
    [post(`${id}/step/`, null), /^Request is not a valid json$/],
    [post(`${id}/step/`, {}), /^A required request parameter 'action' was not provided$/],
    [post(`${id}/step/`, { action: [] }), /^A required request parameter 'action' was not provided$/],
    [post(`${id}/step/`, { action: true }), /the action must be an integer id or a name/],
    [post(`${id}/observation_space/contains`, null), /^Request is not a valid json$/],
    [post(`${id}/monitor/start/`, { directory: 'x' }), /Monitoring is not offered.*trajectory/],
    [post(`${id}/monitor/close/`, null), /Monitoring is not offered/],
    [app.ask('POST', '/compat/gym/v1/upload/', {}), /Uploading is not offered/],
    [app.ask('POST', '/compat/gym/v1/shutdown/'), /may not stop the server/],
    ...['reset/', 'step/', 'close/'].flatMap(route =>
      [`nobody/${route}`, `${gone}/${route}`].map(
        path =>
          [post(path, { action: 0 }), /^Instance_id \S+ unknown: /] as [ReturnType<typeof post>, RegExp],
      ),
    ),
    ...['action_space/', 'action_space/sample', 'action_space/contains/1', 'observation_space/'].map(
      route => [get(`nobody/${route}`), /^Instance_id nobody unknown: /] as [ReturnType<typeof get>, RegExp],
    ),
  ];
  for (const [reply, message] of cases)
    t.match(await reply, { status: 400, body: { message } }, String(message));
  for (let i = 0; i < 3; i++) await post(`${id}/step/`, { action: 'add' });
  t.match(await post(`${id}/step/`, { action: 'add' }), {
    status: 400,
    body: { message: /reset the session/ },
  });
  app.wait(61);
  t.match(await post(`${id}/reset/`, null), { status: 400, body: { message: /unknown: .*expired/ } });
  t.match(await post('', { env_id: 'x'.repeat(3000) }), { status: 413, body: { message: String } });
  t.match(await app.ask('POST', ENVS, 'env_id=1', { 'content-type': 'text/plain' }), {
    status: 415,
    body: { message: String },
  });
});

t.test('faults of the server and limits keep their status', async t => {
  const app = await testApp(t, { maxSessions: 1, stepTimeoutMs: 20 });
  const { make, post } = client(app);
  const slow = await make({ env_id: 'test/Slow-v0' });
  t.match(await post('', COUNTER), {
    status: 429,
    headers: { 'retry-after': '1' },
    body: { message: /limit of 1 session o/ },
  });
  t.match(await post(`${slow}/step/`, { action: 'add' }), {
    status: 504,
    body: { message: /not done within 20 ms/ },
  });
  waiting.shift()!();
  await post(`${slow}/close/`, null);
  const faulty = await make({ env_id: 'test/Faulty-v0' });
  t.match(await post(`${faulty}/step/`, { action: 'throw' }), {
    status: 500,
    body: { message: /out of order/, code: 'environment_fault', trace_id: /^[0-9a-f]{32}$/ },
  });
});

t.test('instances belong to their token', async t => {
  const tokens = ['ann', 'bob'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] }));
  const app = await testApp(t, { tokens: JSON.stringify(tokens) });
  const as = (authorization?: string) =>
    client({
      ask: (method, url, payload, headers) =>
        app.ask(method, url, payload, authorization === undefined ? headers : { ...headers, authorization }),
    });
  t.match(await as().get(''), {
    status: 401,
    headers: { 'www-authenticate': 'Bearer' },
    body: { message: String },
  });
  const ann = as(`Basic ${Buffer.from('any:ann').toString('base64')}`);
  const id = await ann.make(COUNTER);
  t.match((await ann.get('')).body, { all_envs: { [id]: 'test/Counter-v0' } });
  t.same((await as('Bearer bob').get('')).body, { all_envs: {} });
  t.equal((await as('Bearer bob').post(`${id}/reset/`, null)).status, 400);
});
