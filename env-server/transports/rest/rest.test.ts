import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';

t.test('a session is created, stepped, seen, reset and closed', async t => {
  const { ask } = await testApp(t);
  const created = await ask('POST', '/v1/sessions', {
    env_id: 'test/Counter-v0',
    seed: 7,
    options: { start: 1 },
  });
  t.equal(created.status, 201);
  t.match(created.body, {
    session_id: /^s[\w-]{16}$/,
    env_id: 'test/Counter-v0',
    group_id: null,
    seed: 7,
    step: 0,
    observation: /^1\/3 \d+$/,
    info: {},
    expires_at: /^\d{4}-/,
  });
  const route = `/v1/sessions/${created.body.session_id}`;

  const stepped = await ask('POST', `${route}/step`, { action: 'add' });
  t.equal(stepped.status, 200);
  t.match(stepped.body, {
    session_id: created.body.session_id,
    episode_id: created.body.episode_id,
    step: 1,
    observation: /^2\/3/,
    reward: 1,
    terminated: false,
    truncated: false,
    info: { success: false, action_is_valid: true },
  });

  const seen = await ask('GET', route);
  t.match(seen.body, {
    step: 1,
    return: 1,
    terminated: false,
    structured: { count: 2, goal: 3 },
    options: { start: 1 },
    config: { goal: 3, max_steps: 5 },
    max_episode_steps: 5,
  });

  const reset = await ask('POST', `${route}/reset`);
  t.equal(reset.status, 200);
  t.match(reset.body, { step: 0, observation: /^0\/3/, seed: Number });
  t.not(reset.body.episode_id, created.body.episode_id);

  t.equal((await ask('DELETE', route)).status, 204);
  t.equal((await ask('DELETE', route)).status, 204, 'closing twice is fine');
  isProblem(t, await ask('GET', route), 'session_closed');
});

t.test('without a seed one is drawn and returned, and gives the same episode again', async t => {
  const { ask } = await testApp(t);
  const first = (await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' })).body;
  const again = (await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', seed: Number(first.seed) }))
    .body;
  t.equal(again.observation, first.observation);
  const other = (await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' })).body;
  t.not(other.seed, first.seed);
});

t.test('the members of a group start from the same seed and state', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 3 });
  const members = body.sessions as unknown as { [key: string]: string }[];
  t.equal(members.length, 3);
  t.equal(members[0].session_id, body.session_id);
  for (const key of ['seed', 'observation', 'group_id']) {
    t.equal(new Set(members.map(member => member[key])).size, 1, key);
  }
  t.match(body.group_id, /^g/);
  for (const key of ['session_id', 'episode_id']) {
    t.equal(new Set(members.map(member => member[key])).size, 3, key);
  }
  const draws = await Promise.all(
    members.map(member => ask('POST', `/v1/sessions/${member.session_id}/step`, { action: 'draw' })),
  );
  t.equal(new Set(draws.map(draw => draw.body.observation)).size, 1, 'they draw the same');
  const listed = await ask('GET', `/v1/sessions?group_id=${body.group_id}`);
  t.equal(listed.body.sessions.length, 3);
});

t.test('every wrong request gets its problem and the server continues', async t => {
  const { ask, open } = await testApp(t, { bodyLimitBytes: 1000 });
  const id = await open();
  const route = `/v1/sessions/${id}`;
  const wrong = async (code: Parameters<typeof isProblem>[2], ...request: Parameters<typeof ask>) => {
    const reply = await ask(...request);
    t.comment(`${request[0]} ${request[1]}: ${reply.body.detail}`);
    isProblem(t, reply, code);
    return reply;
  };
  await wrong('bad_json', 'POST', '/v1/sessions', '{"env_id":');
  await wrong('unsupported_media_type', 'POST', '/v1/sessions', 'env_id=1', { 'content-type': 'text/plain' });
  await wrong('body_too_large', 'POST', '/v1/sessions', { env_id: 'x'.repeat(2000) });
  await wrong('bad_json', 'POST', '/v1/sessions', '{"__proto__":1}');
  await wrong('invalid_request', 'POST', '/v1/sessions', `{"env_id":${'['.repeat(200)}${']'.repeat(200)}}`);
  await wrong('invalid_request', 'POST', '/v1/sessions', '[1]');
  await wrong('invalid_request', 'POST', '/v1/sessions', {});
  await wrong('unknown_environment', 'POST', '/v1/sessions', { env_id: 'Sokobon-v0' });
  await wrong('unknown_environment', 'GET', '/v1/envs/nothing%2FHere-v0');
  await wrong('not_found', 'GET', '/v2/sessions');
  await wrong('unknown_session', 'POST', '/v1/sessions/s1/step', { action: 'add' });
  await wrong('unknown_session', 'DELETE', '/v1/sessions/s1');
  await wrong('invalid_action', 'POST', `${route}/step`, { action: { up: 1 } });
  await wrong('invalid_action', 'POST', `${route}/step`, { action: null });
  await wrong('invalid_request', 'POST', `${route}/step`, {});
  await wrong('invalid_request', 'POST', `${route}/step`, { action: 0, session_id: 'other' });
  await wrong('invalid_request', 'POST', `${route}/step?action=1`, { action: 0 });
  await wrong('wrong_step', 'POST', `${route}/step`, { action: 0, expected_step: 2 });
  await wrong('unknown_snapshot', 'POST', `${route}/restore`, { snapshot_id: 'none' });
  await wrong('unknown_reference', 'POST', `${route}/reference`, { policy: 'oracle' });
  await wrong('invalid_request', 'GET', `${route}/render?mode=video`);
  for (const limit of ['0', '0x10', '1e1', '5.7', '', '%205', '9'.repeat(19)]) {
    await wrong('invalid_request', 'GET', `/v1/sessions?limit=${limit}`);
  }
  await wrong('invalid_request', 'GET', '/v1/sessions?color=red');
  await wrong('bad_request', 'GET', '/v1/sessions/%zz');
  for (let i = 0; i < 3; i++) {
    t.equal((await ask('POST', `${route}/step`, { action: 'add', expected_step: i + 1 })).status, 200);
  }
  await wrong('episode_over', 'POST', `${route}/step`, { action: 'add' });
});

t.test('422 points at every fault and lists what would be right', async t => {
  const { ask } = await testApp(t);
  const create = (body: object) => ask('POST', '/v1/sessions', body as { [key: string]: string });
  const pointers = async (body: object) => {
    const reply = await create(body);
    isProblem(t, reply, 'invalid_request');
    return (reply.body.errors as unknown as { pointer: string; detail: string }[]).map(
      ({ pointer, detail }) => `${pointer}: ${detail}`,
    );
  };
  t.match(await pointers({ env_id: 'test/Counter-v0', config: { gaol: 1 } }), [
    /^\/config\/gaol: .*unknown key gaol.*goal/,
  ]);
  t.match(await pointers({ env_id: 'test/Counter-v0', config: { preset: 'short' } }), [
    /^\/config\/preset: .*long/,
  ]);
  t.match(await pointers({ env_id: 'test/Counter-v0', options: { stort: 1 } }), [
    /^\/options\/stort: .*start/,
  ]);
  t.match(await pointers({ env_id: 'test/Counter-v0', observation_format: 'grid' }), [
    /^\/observation_format: .*text, structured/,
  ]);
  t.match(await pointers({ env_id: 'test/Counter-v0', wrappers: [{ name: 'time_limits' }] }), [
    /^\/wrappers\/0\/name: .*time_limits.*available/,
  ]);
  t.match(await pointers({ env_id: 'test/Held-v0', seed: 1 }), [/^\/seed: .*takes no seed/]);
  t.match(await pointers({ env: 'x', seed: -1, 'a/b': 1 }), [
    '/env_id: "env_id" is required',
    /^\/env: unknown key "env"; known are env_id, /,
    /^\/a~1b: unknown key/,
    '/seed: seed must be >= 0',
  ]);
});

t.test('a preset is the base of a configuration', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('POST', '/v1/sessions', {
    env_id: 'test/Counter-v0',
    config: { preset: 'long', goal: 7 },
  });
  t.match(body.observation, /^0\/7/);
  t.match((await ask('GET', `/v1/sessions/${body.session_id}`)).body.config, { goal: 7, max_steps: 1000 });
});

t.test('an unknown action of the right type is a step, not an error', async t => {
  const { ask, open } = await testApp(t);
  const { status, body } = await ask('POST', `/v1/sessions/${await open()}/step`, { action: 'jump' });
  t.equal(status, 200);
  t.match(body, { step: 1, info: { action_is_valid: false } });
});

t.test('the step limit truncates', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open({ config: { goal: 100 } })}/step`;
  for (let step = 1; step <= 5; step++) {
    const { body } = await ask('POST', route, { action: 'draw' });
    t.match(body, { step, terminated: false, truncated: step === 5 });
  }
  isProblem(t, await ask('POST', route, { action: 'draw' }), 'episode_over');
});

t.test('rendering: text, picture, data; what there is not is said', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open()}/render`;
  const text = await ask('GET', route);
  t.match(text.headers['content-type'], /^text\/plain/);
  t.match(text.text, /^0\/3/);
  const png = await ask('GET', `${route}?mode=png`);
  t.equal(png.headers['content-type'], 'image/png');
  t.match(png.text, /PNG/);
  t.match((await ask('GET', `${route}?mode=structured`)).body, { count: 0, goal: 3 });
  const slow = await open({ env_id: 'test/Slow-v0' });
  isProblem(t, await ask('GET', `/v1/sessions/${slow}/render?mode=png`), 'unsupported');
});

t.test('a structured session observes data', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('POST', '/v1/sessions', {
    env_id: 'test/Counter-v0',
    observation_format: 'structured',
  });
  t.match(body.observation, { count: 0, goal: 3 });
  const stepped = await ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'add' });
  t.match(stepped.body.observation, { count: 1, goal: 3 });
});

t.test('listing pages through your sessions, oldest first', async t => {
  const { ask, open } = await testApp(t);
  const ids = [await open(), await open({ env_id: 'test/Slow-v0' }), await open(), await open()];
  const seen: unknown[] = [];
  let cursor = '';
  for (let page = 0; page < 2; page++) {
    const { body } = await ask('GET', `/v1/sessions?limit=2${cursor}`);
    seen.push(...(body.sessions as unknown as { session_id: string }[]).map(session => session.session_id));
    t.equal(body.next_cursor === null, page === 1);
    cursor = `&cursor=${body.next_cursor}`;
  }
  t.same(seen, ids);
  const filtered = await ask('GET', '/v1/sessions?env_id=test%2FSlow-v0');
  t.equal(filtered.body.sessions.length, 1);
});

t.test('a reference policy plans from the current state', async t => {
  const { ask, open } = await testApp(t);
  const route = `/v1/sessions/${await open()}`;
  const plan = async (body: { [key: string]: number }) =>
    (await ask('POST', `${route}/reference`, body)).body;
  t.same(await plan({}), { policy: 'optimal', actions: ['add'] });
  await ask('POST', `${route}/step`, { action: 'add' });
  t.same(await plan({ count: 10 }), { policy: 'optimal', actions: ['add', 'add'] });
  t.match((await ask('GET', route)).body, { step: 1 }, 'nothing was stepped');
});

t.test('environments are listed, found and described under a configuration', async t => {
  const { ask } = await testApp(t);
  const ids = async (query: string) =>
    ((await ask('GET', `/v1/envs${query}`)).body.environments as unknown as { env_id: string }[]).map(
      environment => environment.env_id,
    );
  t.ok((await ids('')).includes('FrozenLake-v0'));
  t.same(await ids('?search=counter'), ['test/Counter-v0']);
  t.ok((await ids('?tag=test')).every(id => id.startsWith('test/')));
  const route = '/v1/envs/test%2FCounter-v0';
  const found = await ask('GET', route);
  t.match(found.body, {
    env_id: 'test/Counter-v0',
    config: { goal: 3 },
    config_schema: { properties: { goal: { default: 3 } } },
    instruction: 'Count to 3.',
    actions: ['add', 'draw'],
    vocabulary: ['add', 'draw'],
    observation_space: { json_schema: { type: 'string' }, gymnasium: { type: 'Text' } },
    action_space: {
      json_schema: { anyOf: [{ type: 'integer', minimum: 0, maximum: 1 }, { enum: ['add', 'draw'] }] },
      gymnasium: { type: 'Discrete', n: 2, start: 0 },
    },
    reward_range: [0, 1],
    render_modes: ['text', 'structured', 'png'],
    references: [{ name: 'optimal', title: 'Adds' }],
    capabilities: { seed: true, snapshot: true, reseed: true, render: true },
    example_action: 'add',
    history: [{ version: 0 }],
  });
  const described = await ask('POST', `${route}/describe`, { config: { goal: 9 } });
  t.match(described.body, { config: { goal: 9 }, instruction: 'Count to 9.' });
  t.same((await ask('POST', `${route}/describe`)).body, found.body);
});

t.test('every built-in environment is described, opened and rendered', async t => {
  const { ask } = await testApp(t);
  const { body } = await ask('GET', '/v1/envs');
  for (const { env_id } of body.environments as unknown as { env_id: string }[]) {
    if (env_id.startsWith('test/')) continue;
    const described = await ask('GET', `/v1/envs/${env_id}`);
    t.equal(described.status, 200, env_id);
    const created = await ask('POST', '/v1/sessions', { env_id, seed: 1 });
    t.equal(created.status, 201, `${env_id}: ${created.text.slice(0, 300)}`);
    const route = `/v1/sessions/${created.body.session_id}`;
    t.equal((await ask('GET', `${route}/render`)).status, 200, env_id);
  }
});
