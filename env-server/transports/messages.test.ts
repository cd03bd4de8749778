import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { isProblem, testApp } from '../../test/app.test-data.ts';
import { dial, hostOf, listening, sendRaw } from '../../test/wire.test-data.ts';
import { createApp } from '../app.ts';

/** Frequent mistakes with curl, and the replies to them. */

const COUNTER = 'test/Counter-v0';

t.test('problems of clumsy requests say what was wrong, where, and what would be right', async t => {
  const { ask, open } = await testApp(t);
  const id = await open();
  const step = `/v1/sessions/${id}/step`;
  const many = (more: object) => ({
    ...more,
    ...Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`k${i}`, 1])),
  });
  const cases: readonly (readonly [path: string, body: unknown, status: number, detail: RegExp])[] = [
    ['/v1/sessions', "{'env_id': 'x'}", 400, /double quotes/],
    ['/v1/sessions', '{env_id: 1}', 400, /double quotes/],
    ['/v1/sessions', '{"env_id": "x",}', 400, /no comma before }/],
    ['/v1/sessions', [], 422, /a JSON object such as {"env_id": …}, got a list/],
    ['/v1/sessions', '"x"', 422, /such as {"env_id": …}, got a string/],
    ['/v1/sessions', {}, 422, /"env_id" is required/],
    [
      '/v1/sessions',
      { env_id: 'CartPole-v1' },
      404,
      /^there is no environment "CartPole-v1"; GET \/v1\/envs lists/,
    ],
    ['/v1/sessions', { env_id: 'Counter-v1' }, 404, /did you mean test\/Counter-v0\?/],
    [
      '/v1/sessions',
      { env_id: COUNTER, preset: 'long' },
      422,
      /unknown key "preset".*`preset` among them, belong in "config"/,
    ],
    ['/v1/sessions', { env_id: COUNTER, config: 'long' }, 422, /config must be object, got "long"/],
    [
      '/v1/sessions',
      { env_id: COUNTER, config: { preset: 'lnog' } },
      422,
      /no preset "lnog"; its presets are .*long/,
    ],
    [
      '/v1/sessions',
      { env_id: COUNTER, wrappers: ['record'] },
      422,
      /wrappers\/0 must be object, got "record", e\.g\. {"name":"time_limit"/,
    ],
    [
      '/v1/sessions',
      { env_id: COUNTER, wrappers: { record: {} } },
      422,
      /wrappers must be array, .* e\.g\. \[{"name":"time_limit"/,
    ],
    [
      '/v1/sessions',
      { env_id: COUNTER, wrappers: [{ name: 'timelimit' }] },
      422,
      /did you mean `time_limit`/,
    ],
    ['/v1/sessions', { env_id: COUNTER, seed: '1' }, 422, /seed must be integer or null, got "1"/],
    ['/v1/sessions', { env_id: COUNTER, observation_format: 'json' }, 422, /one of text, grid, .*got "json"/],
    ['/v1/sessions', many({ env_id: COUNTER }), 422, /unknown key "k0"; known are env_id/],
    [
      '/v1/sessions',
      { env_id: COUNTER, config: many({}) },
      422,
      /config must not have more than 1000 keys, got an object of \d+/,
    ],
    [
      '/v1/sessions',
      { env_id: COUNTER, wrappers: [many({ name: 'record' })] },
      422,
      /wrappers\/0: unknown key "k0"; known are name, options/,
    ],
    [step, '{"action": 1e999}', 422, /\/action is Infinity, not a finite number/],
    [`/v1/sessions/${'a'.repeat(9000)}`, '', 400, /is not a valid url component|a{250}…$/],
    [step, 'Up', 400, /"Up" is not valid JSON/],
    [step, '"Up"', 422, /such as {"action": …}, got a string/],
    [`${step}?`, '"Up"', 422, /such as {"action": …}, got a string/],
    [step, { actions: ['add'] }, 422, /"action" is required/],
    [step, { action: 'add', session_id: id }, 422, /"session_id": it belongs in the address/],
    [step, { action: 'add', request_key: 'k' }, 422, /it is the header Idempotency-Key/],
    [step, { action: 'add', expected_step: '1' }, 422, /expected_step must be integer, got "1"/],
    ['/v1/batch', [{ op: 'step' }], 422, /such as {"items": \[{"op": "step", .* got a list/],
    [
      '/v1/batch',
      { items: { op: 'step' } },
      422,
      /items must be array, got an object, e\.g\. \[{"op":"step"/,
    ],
    ['/v1/batch', { items: [] }, 422, /fewer than 1 item, got a list of 0/],
    ['/v1/envs', { env_id: 'a/B-v0', kind: 'tabular' }, 422, /"definition" is required/],
  ];
  for (const [path, body, status, detail] of cases) {
    const reply = await ask('POST', path, body as Json);
    t.equal(reply.status, status, `${path} ${JSON.stringify(body).slice(0, 80)}`);
    t.match(reply.body.detail, detail);
    t.ok(reply.text.length < 4000, `${reply.text.length} characters`);
    t.notMatch(reply.text, /schema is false/);
  }
  const kind = await ask('POST', '/v1/envs', { env_id: 'a/B-v0', kind: 'tabular' });
  t.match(JSON.stringify(kind.body.errors), /unknown key .*kind.*belongs in .*definition/);
});

t.test('the problem of an unknown value of a setting lists the known ones', async t => {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  const payload = { env_id: 'FrozenLake-v0', config: { map: '6x6' } };
  const reply = await app.server.inject({ method: 'POST', url: '/v1/sessions', payload });
  t.equal(reply.statusCode, 422);
  t.match(reply.json().detail, /map must be one of "random", "4x4", "8x8", got "6x6"/);
});

t.test('the problem of a body under another type, or none, names the header', async t => {
  const app = await listening(t);
  const send = (type: string) =>
    sendRaw(app, `POST /v1/sessions HTTP/1.1\nHost: ${hostOf(app)}${type}\nContent-Length: 2`, '{}');
  for (const [type, detail] of [
    ['', /the header content-type is missing; .*curl: -H 'content-type: application\/json'/],
    ['\nContent-Type:', /is missing; .*curl/],
    [
      '\nContent-Type: application/x-www-form-urlencoded',
      /is application\/x-www-form-urlencoded; .*curl: -H/,
    ],
    ['\nContent-Type: text/json', /is text\/json; send content-type: application\/json$/],
  ] as const) {
    const reply = await send(type);
    t.equal(reply.status, 415, type);
    t.match(JSON.parse(reply.body).detail, detail);
  }
});

t.test('errors of oversized messages name the limit', async t => {
  const app = await listening(t, { bodyLimitBytes: 1000 });
  const long = JSON.stringify({ env_id: 'x'.repeat(2000) });
  const reply = await app.ask('POST', '/v1/sessions', long);
  isProblem(t, reply, 'body_too_large');
  t.match(reply.body.detail, /is 2013 bytes, more than the 1000 bytes .*--body-limit-bytes/);
  const chunked = await app.ask('POST', '/v1/sessions', long, { 'transfer-encoding': 'chunked' });
  isProblem(t, chunked, 'body_too_large');
  t.match(chunked.body.detail, /larger than the 1000 bytes/);
  const headers = await sendRaw(app, `GET /livez HTTP/1.1\nHost: ${hostOf(app)}\nX: ${'x'.repeat(20_000)}`);
  t.match(JSON.parse(headers.body).detail, /headers are larger than \d+ bytes/);
  const many = Array.from({ length: 5000 }, (_, i) => `X${i}: 1`).join('\n');
  const crowd = await sendRaw(app, `GET /livez HTTP/1.1\nHost: ${hostOf(app)}\n${many}`);
  t.equal(crowd.status, 400);
  t.match(JSON.parse(crowd.body).detail, /headers are larger than \d+ bytes/);
  t.equal((await app.ask('GET', '/livez')).status, 200);
});

t.test('the problem of an unencoded slash in an environment id says how to write it', async t => {
  const { ask } = await testApp(t);
  for (const [method, path, right] of [
    ['GET', '/v1/envs/me/Guess-v0', '/v1/envs/me%2FGuess-v0'],
    ['PUT', '/v1/envs/me/Guess-v0', '/v1/envs/me%2FGuess-v0'],
    ['DELETE', '/v1/envs/me/Guess-v0?x=1', '/v1/envs/me%2FGuess-v0'],
    ['POST', '/v1/envs/me/Guess-v0/check', '/v1/envs/me%2FGuess-v0/check'],
    ['GET', '/v1/envs/me/Guess-v0/definition', '/v1/envs/me%2FGuess-v0/definition'],
  ] as const) {
    const reply = await ask(method, path);
    isProblem(t, reply, 'not_found');
    t.ok(String(reply.body.detail).endsWith(`the path has %2F: ${right}`), String(reply.body.detail));
  }
  const other = await ask('GET', `/v1/envs/a/b/c/${'x'.repeat(9000)}`);
  t.match(other.body.detail, /^.{0,400}; \/docs shows the routes$/);
});

t.test('a plain request for a WebSocket route is answered with 426', async t => {
  const { ask } = await testApp(t);
  for (const path of ['/v1/ws', '/compat/openenv/test%2FCounter-v0/ws']) {
    const reply = await ask('GET', path);
    t.equal(reply.status, 426, path);
    t.match(reply.body.detail, /is a WebSocket: connect to it with ws:\/\//);
    t.equal(reply.headers.upgrade, 'websocket');
  }
});

t.test('null for seed and options is the same as none on every transport', async t => {
  const app = await listening(t);
  const nothing = { seed: null, options: null };
  const created = await app.ask('POST', '/v1/sessions', { env_id: COUNTER, ...nothing, count: 2 });
  t.equal(created.status, 201);
  t.type(created.body.seed, 'number');
  const session_id = String(created.body.session_id);
  const reset = await app.ask('POST', `/v1/sessions/${session_id}/reset`, nothing);
  t.match(reset, { status: 200, body: { episode_id: `${session_id}.2`, seed: Number } });
  t.equal(
    (await app.ask('POST', '/v1/sessions', { env_id: 'test/Held-v0', ...nothing })).status,
    201,
    'no seed to refuse',
  );
  const items = [
    { op: 'create', env_id: COUNTER, ...nothing },
    { op: 'reset', session_id, ...nothing },
  ];
  const batch = await app.ask('POST', '/v1/batch', { items });
  t.match(batch.body.results, [{ ok: true }, { ok: true }]);
  for (const protocol of ['ragen.json', 'ragen.msgpack']) {
    const { send, next } = await dial(t, app, '/v1/ws', { protocol });
    send({ id: 1, ...items[0] });
    t.match(await next(), { id: 1, ok: true, result: { seed: Number } });
    send({ id: 2, ...items[1] });
    t.match(await next(), { id: 2, ok: true, result: { seed: Number } });
  }
  const gym = await app.ask('POST', '/compat/gym/v1/envs', { env_id: COUNTER, seed: null });
  t.equal(gym.status, 200);
  const openenv = await app.ask('POST', '/compat/openenv/test%2FCounter-v0/reset', { seed: null });
  t.equal(openenv.status, 200);
});

t.test('environments are listed in pages', async t => {
  const { ask } = await testApp(t);
  const ids = ({ body }: Awaited<ReturnType<typeof ask>>) =>
    (body.environments as unknown as { env_id: string }[]).map(({ env_id }) => env_id);
  const whole = await ask('GET', '/v1/envs');
  t.equal(whole.body.next_cursor, null);
  const found: string[] = [];
  let cursor: unknown = '';
  while (cursor !== null) {
    const page = await ask(
      'GET',
      `/v1/envs?limit=2${cursor === '' ? '' : `&cursor=${encodeURIComponent(String(cursor))}`}`,
    );
    t.ok(ids(page).length <= 2);
    found.push(...ids(page));
    cursor = page.body.next_cursor;
  }
  t.same(found, ids(whole));
  const searched = await ask('GET', '/v1/envs?limit=1&search=counter');
  t.match(searched.body, { environments: [{ env_id: COUNTER }], next_cursor: null });
  isProblem(t, await ask('GET', '/v1/envs?limit=0'), 'invalid_request');
  isProblem(t, await ask('GET', '/v1/envs?limit=10001'), 'invalid_request');
});
