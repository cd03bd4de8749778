import t, { type Test } from 'tap';
import type { Json } from '../../shared/json.ts';
import { createApp } from '../app.ts';
import type { Settings } from '../config/settings.ts';
import { EXAMPLES } from './examples.ts';
import { testService } from './remote/service.test-data.ts';

/** Through real sockets: what one custom environment does must not be felt in the sessions of others. */

async function server(t: Test, settings: Partial<Settings> = {}) {
  const app = await createApp({ logLevel: 'silent', remoteNetworks: '127.0.0.1', ...settings });
  t.teardown(() => app.server.close());
  const origin = await app.server.listen({ host: '127.0.0.1', port: 0 });
  const post = async (path: string, body: Json) => {
    const response = await fetch(origin + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: (await response.json()) as { [key: string]: never } };
  };
  const open = async (env_id: string) =>
    String((await post('/v1/sessions', { env_id, seed: 1 })).body.session_id);
  const step = (session: string, action: Json) => post(`/v1/sessions/${session}/step`, { action });
  return { post, open, step, close: () => app.server.close() };
}

/** Behaves until somebody says the word. */
const sleeper = {
  ...(EXAMPLES.script.value.definition as object),
  source: [
    'const reset = () => ({});',
    'const step = (state, action) => {',
    '  if (action === "loop") for (;;) {}',
    '  if (action === "grow") { const all = []; for (;;) all.push(new Uint8Array(1e6)); }',
    '  if (action === "recurse") { const f = () => f() + 1; f(); }',
    '  if (action === "escape") return { state: process.env };',
    '  if (action === "deaf") { let o = {}; for (let i = 0; i < 26; i++) o = { a: o, b: o }; JSON.stringify(o); }',
    '  if (action === "nest") { let o = {}; for (let i = 0; i < 6500; i++) o = { o }; return { state, info: o }; }',
    '  if (action === "pay") return { state, reward: -2e15 };',
    '  return { state };',
    '};',
    'const observe = () => "waiting";',
  ],
};

t.test('hostile scripts are stopped with a clear problem, in their own session only', async t => {
  const { post, open, step } = await server(t, { scriptTimeMs: 200 });
  t.equal((await post('/v1/envs', { env_id: 'me/Sleeper-v0', definition: sleeper })).status, 201);
  const other = await open('me/Sleeper-v0');
  const cases: [action: string, code: string, detail: RegExp][] = [
    ['loop', 'script_limit', /more than 200 ms of processor time/],
    ['grow', 'script_limit', /more than (32 MB of memory|200 ms of processor time)/],
    ['recurse', 'script_limit', /called one another too deeply/],
    ['escape', 'environment_fault', /process is not defined/],
    ['nest', 'environment_fault', /\/info\/o.* nested more than 64 levels deep/],
    [
      'pay',
      'environment_fault',
      /me\/Sleeper-v0: reward must be from .*, got -2000000000000000: .* by 1e-15 .* \(step 1 of the episode\)/,
    ],
    ['deaf', 'script_limit', /more than 200 ms of processor time/],
  ];
  for (const [action, code, detail] of cases) {
    const session = await open('me/Sleeper-v0');
    const stopped = await step(session, action);
    t.match(stopped, { status: 500, body: { code, detail } }, action);
    t.match(await step(session, 'x'), { status: 409, body: { code: 'episode_over' } });
    t.equal((await step(other, 'x')).status, 200, 'the others continue');
    t.equal((await post(`/v1/sessions/${session}/reset`, {})).status, 200, 'and so does it after a reset');
  }
});

t.test('other sessions are answered while a script loops', async t => {
  const { post, open, step, close } = await server(t, { scriptTimeMs: 60_000 });
  await post('/v1/envs', { env_id: 'me/Sleeper-v0', definition: sleeper });
  await post('/v1/envs', EXAMPLES.script.value);
  const looping = [await open('me/Sleeper-v0'), await open('me/Sleeper-v0')];
  const lake = await open('Game2048-v0');
  const guess = await open('demo/Guess-v0');
  let stopped = 0;
  const stops = looping.map(session => step(session, 'loop').finally(() => stopped++));
  for (let i = 0; i < 25; i++) t.equal((await step(lake, i % 4)).status, 200);
  for (let i = 0; i < 5; i++) t.equal((await step(guess, 'what?')).status, 200);
  t.equal(stopped, 0, 'thirty steps of others came back while both sessions looped');
  // Neither loop is waited for: what a loop comes to, the test above says.
  const ends = Promise.allSettled(stops);
  await close();
  t.equal((await ends).length, 2, 'the server that closes ends both');
});

t.test('a remote that does not answer delays neither other sessions nor a batch', async t => {
  const held: (() => void)[] = [];
  const service = await testService(t, async ({ path, body }) => {
    if (path === '/step' && body.action === 'Wait') await new Promise<void>(resolve => held.push(resolve));
    return { body: { observation: 'here' } };
  });
  const { post, open, step } = await server(t);
  const registered = await post('/v1/envs', {
    env_id: 'me/Slow-v0',
    definition: {
      kind: 'remote',
      protocol: 'webhook',
      url: service.url,
      title: 'Slow',
      instruction: 'Wait or go.',
      action_space: { type: 'Text' },
      example_action: 'Go',
    },
  });
  t.equal(registered.status, 201, JSON.stringify(registered.body));
  const slow = await open('me/Slow-v0');
  const lake = await open('Game2048-v0');
  const waiting = step(slow, 'Wait');
  for (let i = 0; i < 10; i++) t.equal((await step(lake, i % 4)).status, 200);
  const { body } = await post('/v1/batch', {
    wait: 1,
    items: [
      { op: 'step', session_id: slow, action: 'Go' },
      { op: 'step', session_id: lake, action: 1 },
    ],
  });
  t.match(body, { results: [{ ok: false, pending: true }, { ok: true }], pending: [0] });
  while (held.length === 0) await new Promise(resolve => setImmediate(resolve));
  for (const release of held) release();
  t.match(await waiting, { status: 200, body: { step: 1, observation: 'here' } });
  t.match(await step(slow, 'Go'), { body: { step: 3 } }, 'the step of the batch came second');
});

t.test('a service that goes down and returns costs a retry, not the episode', async t => {
  const service = await testService(t, () => ({ body: { observation: 'here' } }));
  const { post, open, step } = await server(t);
  await post('/v1/envs', {
    env_id: 'me/Flaky-v0',
    definition: {
      kind: 'remote',
      protocol: 'webhook',
      url: service.url,
      title: 'Flaky',
      instruction: 'Go.',
      action_space: { type: 'Text' },
      example_action: 'Go',
    },
  });
  const session = await open('me/Flaky-v0');
  t.equal((await step(session, 'Go')).status, 200);
  service.server.closeAllConnections();
  await new Promise(resolve => service.server.close(resolve));
  t.match(await step(session, 'Go'), {
    status: 502,
    body: { code: 'remote_unavailable', retryable: true, retry_after_s: Number },
  });
  await new Promise<void>(resolve => service.server.listen(service.port, '127.0.0.1', resolve));
  t.match(await step(session, 'Go'), { status: 200, body: { step: 2 } });
});
