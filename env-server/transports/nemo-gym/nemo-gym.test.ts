import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mock } from 'node:test';
import t, { type Test } from 'tap';
import type { Json } from '../../../shared/json.ts';
import { isProblem, type Reply, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { hashToken } from '../access/auth.ts';

const COUNTER = '/compat/nemo-gym/test%2FCounter-v0';
/** Body of a finished rollout, as clients of NeMo Gym send it. */
const FINISHED = {
  responses_create_params: { input: 'Count.' },
  response: { id: 'r', output: [] },
  extra: 7,
};

type Headers = { [name: string]: string };

const cookieOf = (reply: Reply): string => /^[^;]+/.exec(String(reply.headers['set-cookie']))![0];

/** A rollout of a row, by its cookie. */
async function rollout({ ask }: TestApp, row: Json = { seed: 1 }, at = COUNTER, more: Headers = {}) {
  const seeded = await ask('POST', `${at}/seed_session`, row, more);
  const headers = { ...more, cookie: `other=1; ${cookieOf(seeded)}` };
  return {
    seeded,
    headers,
    post: (route: string, body: Json = {}) => ask('POST', `${at}/${route}`, body, headers),
    verify: () => ask('POST', `${at}/verify`, FINISHED, headers),
  };
}

const masked = (t: Test, { status, body }: Reply, kind: string): void => {
  t.equal(status, 200);
  t.match(body, { reward: 0, mask_sample: true, failure_kind: kind, failure_reason: String });
};

t.test('a rollout from its row to its reward', async t => {
  const app = await testApp(t);
  for (const at of [COUNTER, '/compat/nemo-gym/test/Counter-v0', `${COUNTER}/ng-rollout/0-1`]) {
    const { seeded, post, verify } = await rollout(app, { seed: 1, task_index: 3, config: { goal: 2 } }, at);
    t.match(seeded, { status: 200, text: '{}' });
    t.match(seeded.headers['set-cookie'], [/^ragen_rollout=[0-9a-f-]{36}; Path=\/; HttpOnly; SameSite=Lax$/]);
    const step = await post('step', { action: 'add' });
    t.match(step, { status: 200, text: /^1\/2 \d+\n\nReward: 1\.$/ });
    t.match(step.headers, { 'content-type': /^text\/plain/ });
    t.match((await post('step', { action: 'add' })).text, /The episode is over: success\.$/);
    t.match(await post('step', { action: 'add' }), { status: 422, body: { error: /terminated/ } });
    const verified = await verify();
    t.equal(verified.status, 200);
    const verdict = {
      reward: 2,
      success: 1,
      steps: 2,
      mask_sample: false,
      failure_kind: null,
      failure_reason: null,
    };
    t.same(verified.body, { ...FINISHED, ...verdict }, 'the request with the return');
    t.equal(app.sessions.size, 0, 'the session is closed');
    t.same((await verify()).body, verified.body, 'a repeated request has the same verdict');
  }
});

t.test('mistakes of the player are outputs that it can read', async t => {
  const { post, verify } = await rollout(await testApp(t));
  const known = 'there are step, observe, valid_actions';
  t.match(await post('fly'), { status: 422, body: { error: `'fly' is not a valid tool; ${known}` } });
  t.match(await post('reset'), { status: 422, body: { error: /not a valid tool/ } });
  t.match(await post('step', { move: 1 }), { status: 422, body: { error: /action/ } });
  t.match(await post('step'), { status: 422, body: { error: /action/ } });
  isProblem(t, await post('step', ['add']), 'invalid_request');
  isProblem(t, await post('step', '{'), 'bad_json');
  t.match((await post('valid_actions')).text, /^add\ndraw$/);
  t.match((await post('observe')).text, /^0\/3 \d+\n\nStep 0 of at most 5/);
  t.match((await verify()).body, { reward: 0, success: 0, steps: 0, mask_sample: false });
});

t.test('rollouts have their own episodes, and the calls of each keep their order', async t => {
  const app = await testApp(t);
  const both = await Promise.all([rollout(app, { seed: 1 }), rollout(app, { seed: 2 })]);
  t.not(both[0].headers.cookie, both[1].headers.cookie);
  const calls = await Promise.all([
    both[0].post('step', { action: 'add' }),
    both[1].post('step', { action: 'draw' }),
    both[0].post('step', { action: 'add' }),
  ]);
  t.match(
    calls.map(({ text }) => text.slice(0, 3)),
    ['1/3', '0/3', '2/3'],
  );
  const verdicts = await Promise.all([both[0].verify(), both[1].verify(), both[0].verify()]);
  t.match(
    verdicts.map(({ body }) => body.reward),
    [2, 0, 2],
  );
  t.equal(app.sessions.size, 0);
});

t.test('a verdict waits for the step before it', async t => {
  const app = await testApp(t);
  const slow = await rollout(app, {}, '/compat/nemo-gym/test%2FSlow-v0');
  const step = slow.post('step', { action: 'add' });
  await until(() => waiting.length > 0);
  const verdict = slow.verify();
  waiting.shift()!();
  t.match((await step).text, /^1\/3/);
  t.match((await verdict).body, { reward: 1, steps: 1, mask_sample: false });
});

t.test('a rollout without an episode is masked', async t => {
  const app = await testApp(t, { idleTtlSeconds: 60 });
  const { post, verify, headers } = await rollout(app);
  masked(t, await app.ask('POST', `${COUNTER}/verify`, FINISHED), 'session_lost');
  for (const cookie of ['ragen_rollout=none', 'ragen_rollout=', `ragen_rollout=${'x'.repeat(5000)}`, '%;=']) {
    masked(t, await app.ask('POST', `${COUNTER}/verify`, FINISHED, { cookie }), 'session_lost');
    isProblem(t, await app.ask('POST', `${COUNTER}/step`, { action: 'add' }, { cookie }), 'unknown_session');
  }
  masked(
    t,
    await app.ask('POST', '/compat/nemo-gym/test%2FSlow-v0/verify', FINISHED, headers),
    'session_lost',
  );
  t.equal((await post('step', { action: 'add' })).status, 200, 'the cookie is good where it was given');
  app.wait(61);
  masked(t, await verify(), 'session_expired');
  t.equal(app.sessions.size, 0);
});

t.test('a rollout with a fault of the server is masked', async t => {
  const app = await testApp(t);
  const { post, verify } = await rollout(app, {}, '/compat/nemo-gym/test%2FFaulty-v0');
  await post('step', { action: 'add' });
  isProblem(t, await post('step', { action: 'throw' }), 'environment_fault');
  t.equal(app.sessions.size, 0, 'its episode has ended');
  masked(t, await verify(), 'provider_unavailable');
});

t.test('a new seed ends the episode of the cookie', async t => {
  const app = await testApp(t);
  const { post, headers } = await rollout(app);
  t.equal((await post('seed_session', { seed: 2 })).status, 200);
  t.equal(app.sessions.size, 1);
  isProblem(t, await app.ask('POST', `${COUNTER}/step`, { action: 'add' }, headers), 'unknown_session');
});

t.test('a session that an environment server names begins once, and never after its end', async t => {
  const app = await testApp(t);
  const named = (id: string) => ({ resources_session_id: id, episode_id: { rollout_id: '0-0', attempt: 0 } });
  const seed = (id: string, task_data: Json = { seed: 1 }) =>
    app.ask('POST', `${COUNTER}/seed_session`, {
      ...named(id),
      task_id: { taskset: 'a', task_id: 'b' },
      task_data,
    });
  const close = (id: string) => app.ask('POST', `${COUNTER}/close_session`, named(id));
  const first = await seed('mine');
  t.same(first.body, { resources_session_id: 'mine' });
  t.same((await seed('mine')).body, first.body);
  t.equal(app.sessions.size, 1);
  const headers = { cookie: cookieOf(first) };
  await app.ask('POST', `${COUNTER}/step`, { action: 'add' }, headers);
  t.match((await app.ask('POST', `${COUNTER}/verify`, FINISHED, headers)).body, { reward: 1 });
  for (const id of ['mine', 'mine', 'never']) t.same((await close(id)).body, { resources_session_id: id });
  for (const id of ['mine', 'never']) isProblem(t, await seed(id), 'bad_request');
  isProblem(t, await seed('a b'), 'invalid_request');
  isProblem(t, await seed('x', { seed: -1 }), 'invalid_request');
  isProblem(t, await app.ask('POST', `${COUNTER}/close_session`, {}), 'invalid_request');
  await seed('open');
  await close('open');
  t.equal(app.sessions.size, 0);
});

t.test('rows of a data set', async t => {
  const app = await testApp(t);
  const rows = async (body: Json, at = COUNTER) => {
    const { text, status } = await app.ask('POST', `${at}/rows`, body);
    t.equal(status, 200, text);
    return text
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line));
  };
  t.equal((await rows({})).length, 100);
  const [row, ...others] = await rows({ split: 'test', start: 2, count: 3, config: { goal: 2 } });
  t.equal(others.length, 2);
  t.match(row, {
    responses_create_params: {
      input: [{ role: 'user', content: /^Count to 2\.[\s\S]*\n\n0\/2 \d+\n\nPlay with the tools/ }],
      tools: [{ type: 'function', name: 'step', parameters: { required: ['action'] }, strict: false }],
      parallel_tool_calls: false,
    },
    seed: 2_000_002,
    config: { goal: 2 },
  });
  const { post } = await rollout(app, row);
  const [seen] = (await post('observe')).text.split('\n');
  t.ok(row.responses_create_params.input[0].content.includes(seen), 'the episode is that of the prompt');
  const wrapped = await rows({ count: 1, wrappers: [{ name: 'time_limit', options: { max_steps: 2 } }] });
  t.match(wrapped, [{ wrappers: [{ name: 'time_limit' }] }]);
  t.equal(app.sessions.size, 1, 'only the rollout is open');
  isProblem(t, await app.ask('POST', `${COUNTER}/rows`, { count: 1001 }), 'invalid_request');
  isProblem(t, await app.ask('POST', `${COUNTER}/rows`, { split: 'none' }), 'bad_request');
  isProblem(t, await app.ask('POST', '/compat/nemo-gym/None-v0/rows', {}), 'unknown_environment');
});

t.test('rows end at a limit, and when their client is gone', async t => {
  const app = await testApp(t);
  const url = `${COUNTER}/rows`;
  const long = { config: { at: '\u00e9'.repeat(700_000) }, count: 30 };
  const large = await app.ask('POST', '/compat/nemo-gym/test%2FBroken-v0/rows', long);
  isProblem(t, large, 'body_too_large');
  t.match(large.body.detail, /^rows: over 33554432 bytes after 23 rows; set count to 23 or less/);
  const made = () => app.sessions.endings.session_closed;
  const before = made();
  const now = performance.now.bind(performance);
  let laterMs = 0;
  mock.method(performance, 'now', () => now() + laterMs);
  t.teardown(() => mock.restoreAll());
  const slow = app.ask('POST', url, { count: 1000 });
  await until(() => made() > before);
  laterMs = 300_001;
  isProblem(t, await slow, 'body_too_large');
  t.match((await slow).body.detail, /^rows: over 300000 ms after \d+ rows; set count to \d+ or less/);
  const begun = made();
  const { port } = app.server.server.address() as AddressInfo;
  const headers = { 'content-type': 'application/json' };
  const left = request({ host: '127.0.0.1', port, method: 'POST', path: url, headers });
  left.on('error', () => undefined).end('{"count": 1000}');
  await until(() => made() > begun);
  left.destroy();
  const seen: number[] = [];
  await until(() => seen.push(made()) > 1 && seen.at(-1) === seen.at(-2));
  t.ok(made() < begun + 1000, 'no more rows are made');
  t.equal(app.sessions.size, 0);
});

t.test('metrics of a run have the names of NeMo Gym', async t => {
  const { ask } = await testApp(t);
  const rollouts: Json = [
    {
      _ng_task_index: 0,
      _ng_rollout_index: 0,
      reward: 1,
      success: true,
      response: { usage: { input_tokens: 8 } },
    },
    { _ng_task_index: 0, _ng_rollout_index: 1, reward: 3, success: false },
    { _ng_task_index: 1, _ng_rollout_index: 0, reward: 9, mask_sample: true },
  ];
  const { body } = await ask('POST', `${COUNTER}/aggregate_metrics`, { verify_responses: rollouts });
  t.match(body, {
    agent_metrics: {
      'mean/reward': 2,
      'max/reward': 3,
      'median/reward': 2,
      'std/reward': Math.SQRT2,
      num_repeats: 2,
    },
    key_metrics: {
      'mean/reward': 2,
      'mean/success': 0.5,
      'mean/input_tokens': 8,
      'coverage/masked_rollouts': 1,
    },
    group_level_metrics: [{ 'mean/reward': 2, num_rollouts: 2, _ng_task_index: 0 }],
  });
  const none = await ask('POST', `${COUNTER}/aggregate_metrics`, { verify_responses: [] });
  t.same(none.body, { agent_metrics: { num_repeats: 0 }, key_metrics: {}, group_level_metrics: [] });
  isProblem(t, await ask('POST', `${COUNTER}/aggregate_metrics`, {}), 'invalid_request');
  const names = Object.fromEntries(Array.from({ length: 1001 }, (_, i) => [`n${i}`, i]));
  const many = await ask('POST', `${COUNTER}/aggregate_metrics`, { verify_responses: [names] });
  isProblem(t, many, 'invalid_request');
  t.same(JSON.parse((await ask('GET', `${COUNTER}/reverify_mode`)).text), 'unsupported');
});

t.test('tokens and limits hold as everywhere', async t => {
  const tokens = ['one', 'two'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] }));
  const app = await testApp(t, { tokens: JSON.stringify(tokens), maxSessions: 1, bodyLimitBytes: 2000 });
  isProblem(t, await app.ask('POST', `${COUNTER}/seed_session`, {}), 'unauthorized');
  const authorization = `Basic ${Buffer.from('any:one').toString('base64')}`;
  const { post, verify, headers } = await rollout(app, {}, COUNTER, { authorization });
  const stranger = { ...headers, authorization: 'Bearer two' };
  isProblem(t, await app.ask('POST', `${COUNTER}/step`, { action: 'add' }, stranger), 'unknown_session');
  masked(t, await app.ask('POST', `${COUNTER}/verify`, FINISHED, stranger), 'session_lost');
  isProblem(t, await app.ask('POST', `${COUNTER}/seed_session`, {}, { authorization }), 'too_many_sessions');
  isProblem(t, await post('step', { action: 'x'.repeat(3000) }), 'body_too_large');
  isProblem(
    t,
    await app.ask('POST', `${COUNTER}/seed_session`, { env_id: 'Other-v0' }, { authorization }),
    'invalid_request',
  );
  isProblem(t, await app.ask('GET', `${COUNTER}/step`, undefined, headers), 'method_not_allowed');
  await post('step', { action: 'add' });
  t.match((await verify()).body, { reward: 1, mask_sample: false });
});
