import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { type App, createApp } from '../../app.ts';
import { WorkerChannels } from '../../cluster/worker-channels.ts';
import type { Settings } from '../../config/settings.ts';
import { EXAMPLES } from '../../custom/examples.ts';
import { BUILT_IN } from '../../environments/registry.ts';
import { workerOfSession } from '../placement.ts';

/** Sessions over a restart, within one process: every environment, every wrapper, and what time does to them. */

t.setTimeout(900_000);

const STEPS = 6;

async function server(t: Test, data: string, clock = { now: 1e12 }, more: Partial<Settings> = {}) {
  const app = await createApp(
    { logLevel: 'silent', data, checkpointSeconds: 0, ...more },
    { registry: testRegistry(), now: () => clock.now },
  );
  t.teardown(() => app.server.close());
  const ask = async (method: 'GET' | 'POST', url: string, payload?: object, key?: string) => {
    const headers = key === undefined ? {} : { 'idempotency-key': key };
    const reply = await app.server.inject({ method, url, payload, headers });
    return reply.headers['content-type']?.toString().startsWith('application/jsonl')
      ? reply.body
      : reply.json();
  };
  return { ...app, ask };
}

type Ask = Awaited<ReturnType<typeof server>>['ask'];

/** Actions that mean something in an environment, found by playing it. */
async function actionsOf(app: App, id: string): Promise<Json[]> {
  const principal = { name: 'local', scopes: new Set(['admin' as const]) };
  const session = app.sessions.find(principal, id);
  const { references = {}, spec } = session.variant.environment;
  const [policy] = Object.keys(references);
  const planned = policy ? await session.episode.plan(policy, STEPS) : [];
  return [...planned, ...new Array<Json>(STEPS).fill(spec.exampleAction)].slice(0, STEPS);
}

async function play(ask: Ask, id: string, actions: readonly Json[]) {
  const replies: JsonObject[] = [];
  for (const action of actions) {
    const { trace_id: _trace, ...reply } = await ask('POST', `/v1/sessions/${id}/step`, { action });
    replies.push(reply);
  }
  return replies;
}

const choices: { name: string; options?: JsonObject }[][] = [
  [],
  [
    { name: 'sticky_actions', options: { probability: 0.5 } },
    { name: 'time_limit', options: { max_steps: 40 } },
  ],
  [{ name: 'random_actions', options: { probability: 0.5 } }, { name: 'history' }],
  [{ name: 'auto_reset' }],
  [{ name: 'record' }],
  [{ name: 'action_text' }],
];

t.test('a restart does not change the episodes of any environment', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const stayed: { id: string; actions: Json[]; before: JsonObject; twin: string }[] = [];
  for (const environment of BUILT_IN) {
    const env_id = environment.spec.id;
    const presets: JsonObject[] = [
      {},
      ...Object.keys(environment.spec.presets ?? {}).map(preset => ({ preset })),
    ];
    for (const config of presets) {
      const created = await first.ask('POST', '/v1/sessions', { env_id, config, seed: 7 });
      // Some presets need a service or files that are not here.
      if (!created.session_id) continue;
      const actions = await actionsOf(first, created.session_id);
      await play(first.ask, created.session_id, actions.slice(0, 2));
      const { sessions } = await first.ask('POST', `/v1/sessions/${created.session_id}/clone`);
      const before = await first.ask('GET', `/v1/sessions/${created.session_id}`);
      stayed.push({ id: created.session_id, actions, before, twin: sessions[0].session_id });
    }
  }
  t.same(
    new Set(stayed.map(({ before }) => before.env_id)),
    new Set(BUILT_IN.map(({ spec }) => spec.id)),
    `${stayed.length} sessions`,
  );
  const rest = (actions: readonly Json[]) => actions.slice(2);
  const futures = new Map<string, JsonObject[]>();
  for (const { twin, actions } of stayed) futures.set(twin, await play(first.ask, twin, rest(actions)));
  await first.server.close();

  const again = await server(t, data);
  t.equal(again.sessions.size, 2 * stayed.length);
  for (const { id, actions, before, twin } of stayed) {
    const name = String(before.env_id);
    t.same(await again.ask('GET', `/v1/sessions/${id}`), before, `${name} stands where it stood`);
    const future = await play(again.ask, id, rest(actions));
    const unnamed = (replies: JsonObject[]) =>
      replies.map(({ session_id: _session, episode_id: _episode, detail: _detail, ...reply }) => reply);
    t.same(unnamed(future), unnamed(futures.get(twin)!), `${name} goes on as it would have`);
    const records = String(await again.ask('GET', `/v1/sessions/${id}/trajectory`))
      .trimEnd()
      .split('\n');
    t.match(JSON.parse(records[0]), { type: 'reset', seed: before.seed }, `${name} replays`);
  }
});

t.test('wrappers, groups, options, formats and snapshots come along', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const made: { id: string; snapshot_id: string; futures: JsonObject[][]; listed: object }[] = [];
  for (const wrappers of choices) {
    const created = await first.ask('POST', '/v1/sessions', {
      env_id: 'test/Counter-v0',
      config: { preset: 'long' },
      options: { start: 3 },
      wrappers,
      group_id: 'mine',
      observation_format: 'structured',
    });
    const id = created.session_id;
    const action = wrappers[0]?.name === 'action_text' ? '<answer>draw</answer>' : 'draw';
    await play(first.ask, id, [action, action]);
    const { snapshot_id } = await first.ask('POST', `/v1/sessions/${id}/snapshot`);
    const future = await play(first.ask, id, new Array(10).fill(action));
    made.push({
      id,
      snapshot_id,
      futures: [future],
      listed: await first.ask('GET', `/v1/sessions/${id}`),
    });
  }
  await first.server.close();
  const again = await server(t, data);
  const { sessions } = await again.ask('GET', '/v1/sessions?group_id=mine');
  t.same(
    sessions.map(({ session_id }: { session_id: string }) => session_id),
    made.map(({ id }) => id),
    'in the order of their creation',
  );
  for (const [index, { id, snapshot_id, futures, listed }] of made.entries()) {
    const name = choices[index].map(choice => choice.name).join(', ') || 'no wrapper';
    t.same(await again.ask('GET', `/v1/sessions/${id}`), listed, name);
    const restored = await again.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id });
    t.match(restored.episode_id, /\.2$/, 'episodes are counted on');
    const action = choices[index][0]?.name === 'action_text' ? '<answer>draw</answer>' : 'draw';
    const unnamed = (replies: JsonObject[]) => replies.map(({ episode_id: _, ...reply }) => reply);
    t.same(unnamed(await play(again.ask, id, new Array(10).fill(action))), unnamed(futures[0]), name);
    const next = await again.ask('POST', `/v1/sessions/${id}/snapshot`);
    t.not(next.snapshot_id, snapshot_id, 'snapshot ids are not given twice');
  }
  const later = await again.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', group_id: 'mine' });
  const page = await again.ask('GET', '/v1/sessions?group_id=mine&limit=100');
  t.equal(page.sessions.at(-1).session_id, later.session_id);
});

t.test('repeated requests are known after a restart', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const create = { env_id: 'test/Counter-v0', count: 2 };
  const created = await first.ask('POST', '/v1/sessions', create, 'c');
  const step = `/v1/sessions/${created.session_id}/step`;
  const stepped = await first.ask('POST', step, { action: 'draw' }, 's');
  await first.server.close();
  const again = await server(t, data);
  t.same(await again.ask('POST', '/v1/sessions', create, 'c'), created);
  t.same(await again.ask('POST', step, { action: 'draw' }, 's'), stepped);
  t.match(await again.ask('POST', step, { action: 'add' }, 's'), { code: 'key_reused' });
  t.match(await again.ask('POST', '/v1/sessions', { ...create, count: 3 }, 'c'), { code: 'key_reused' });
  t.match(await again.ask('POST', step, { action: 'draw' }, 't'), { step: 2 });
  t.equal(again.sessions.size, 2);
});

t.test(
  'repeated steps are known from the journal, whether or not more than the action was asked',
  async t => {
    const data = t.testdir();
    const copy = `${data}-copy`;
    t.teardown(() => rmSync(copy, { recursive: true, force: true }));
    const first = await server(t, data);
    const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
    const step = `/v1/sessions/${session_id}/step`;
    const asked = { plain: { action: 'add' }, exact: { action: 'add', expected_step: 2 } };
    const plain = await first.ask('POST', step, asked.plain, 'plain');
    const exact = await first.ask('POST', step, asked.exact, 'exact');
    // As it is on the disk while the server runs, and when it is killed.
    cpSync(data, copy, { recursive: true });
    const again = await server(t, copy);
    t.same(await again.ask('POST', step, asked.plain, 'plain'), plain);
    t.same(await again.ask('POST', step, asked.exact, 'exact'), exact);
    t.match(await again.ask('POST', step, asked.exact, 'plain'), { code: 'key_reused' });
    t.match(await again.ask('POST', step, asked.plain, 'exact'), { code: 'key_reused' });
    t.match(await again.ask('GET', `/v1/sessions/${session_id}`), { step: 2 });
  },
);

t.test('idle time stands still while the server is down, lifetime does not; 410 is remembered', async t => {
  const data = t.testdir();
  const clock = { now: 1e12 };
  const limits = { idleTtlSeconds: 100, lifetimeSeconds: 1000, goneSeconds: 500 };
  const first = await server(t, data, clock, limits);
  const open = async (more: object = {}) =>
    (await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', ...more })).session_id;
  const [kept, brief, closed] = [await open(), await open({ ttl_s: 10 }), await open()];
  await first.server.inject({ method: 'DELETE', url: `/v1/sessions/${closed}` });
  clock.now += 50_000;
  first.sessions.sweep();
  await first.server.close();

  clock.now += 300_000;
  const second = await server(t, data, clock, limits);
  const found = await second.ask('GET', `/v1/sessions/${kept}`);
  t.equal(found.expires_at, new Date(clock.now + 100_000).toISOString());
  t.match(await second.ask('GET', `/v1/sessions/${brief}`), { code: 'session_expired', status: 410 });
  t.match(await second.ask('GET', `/v1/sessions/${closed}`), { code: 'session_closed' });
  await second.server.close();

  clock.now += 700_000;
  const third = await server(t, data, clock, limits);
  t.match(await third.ask('GET', `/v1/sessions/${kept}`), { code: 'session_expired' });
  t.match(await third.ask('GET', `/v1/sessions/${brief}`), { code: 'unknown_session' });
  t.equal(third.sessions.size, 0);
});

t.test('limits count what was resumed', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  await first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 3 });
  await first.server.close();
  const again = await server(t, data, undefined, { maxSessions: 2 });
  t.equal(again.sessions.size, 3, 'what was there stays');
  t.match(await again.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }), {
    code: 'too_many_sessions',
  });
});

t.test('an environment that holds more than its state answers 410 with the reason', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Held-v0' });
  await first.server.close();
  const again = await server(t, data);
  t.match(await again.ask('POST', `/v1/sessions/${session_id}/step`, { action: 'add' }), {
    status: 410,
    code: 'session_lost',
    detail: /is lost: test\/Held-v0 holds more than its state/,
  });
});

t.test('sessions of custom environments come along, but for those whose definition was replaced', async t => {
  const data = t.testdir();
  const first = await server(t, data);
  const example = (kind: string) => EXAMPLES[kind].value as { env_id: string; definition: JsonObject };
  const [tabular, script] = [example('tabular'), example('script')];
  const composed = {
    env_id: 'me/Guesses-v0',
    definition: {
      kind: 'composed',
      env_id: script.env_id,
      config: { largest: 1000 },
      wrappers: [{ name: 'history' }],
    },
  };
  const ids: { [envId: string]: string } = {};
  const actions: { [envId: string]: Json } = {
    [tabular.env_id]: 'Swim',
    [script.env_id]: '50',
    [composed.env_id]: '500',
  };
  const futures: { [envId: string]: object } = {};
  const unnamed = (replies: JsonObject[]) =>
    replies.map(({ session_id: _session, episode_id: _episode, detail: _detail, ...reply }) => reply);
  for (const value of [tabular, script, composed]) {
    const { env_id } = value;
    t.match(await first.ask('POST', '/v1/envs', value), { env_id });
    const { session_id } = await first.ask('POST', '/v1/sessions', { env_id, seed: 4 });
    ids[env_id] = session_id;
    await play(first.ask, session_id, [actions[env_id]]);
    const { sessions } = await first.ask('POST', `/v1/sessions/${session_id}/clone`);
    futures[env_id] = unnamed(
      await play(first.ask, sessions[0].session_id, new Array(4).fill(actions[env_id])),
    );
  }
  const again = { env_id: tabular.env_id, seed: 4 };
  const old = await first.ask('POST', '/v1/sessions', again);
  await first.server.close();

  const second = await server(t, data);
  for (const [env_id, id] of Object.entries(ids)) {
    const replies = await play(second.ask, id, new Array(4).fill(actions[env_id]));
    t.same(unnamed(replies), futures[env_id], env_id);
  }
  const route = `/v1/envs/${encodeURIComponent(tabular.env_id)}`;
  const { statusCode } = await second.server.inject({
    method: 'PUT',
    url: route,
    payload: { definition: { ...tabular.definition, max_episode_steps: 5 } },
  });
  t.equal(statusCode, 200);
  t.match(
    await second.ask('GET', `/v1/sessions/${old.session_id}`),
    { step: 0 },
    'it goes on while the server lives',
  );
  const fresh = await second.ask('POST', '/v1/sessions', again);
  await second.server.close();

  const third = await server(t, data);
  t.match(await third.ask('GET', `/v1/sessions/${old.session_id}`), {
    status: 410,
    code: 'session_lost',
    detail: /demo\/Crossing-v0 was replaced while the session was open/,
  });
  t.match(await third.ask('GET', `/v1/sessions/${fresh.session_id}`), { max_episode_steps: 5 });
});

t.test('a step under way at the end is as if it had not begun, draws included', async t => {
  const { waiting } = await import('../../../test/environments.test-data.ts');
  const data = t.testdir();
  const first = await server(t, data);
  const { session_id } = await first.ask('POST', '/v1/sessions', { env_id: 'test/Slow-v0', seed: 3 });
  const twin = await first.ask('POST', '/v1/sessions', { env_id: 'test/Slow-v0', seed: 3 });
  const step = { action: 'draw' };
  void first.ask('POST', `/v1/sessions/${session_id}/step`, step, 'k').catch(() => undefined);
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  const late = first.shutDown(20);
  await t.rejects(first.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }).then(refuse), {
    code: 'draining',
    status: 503,
    retry_after_s: 1,
  });
  await new Promise(resolve => setTimeout(resolve, 40));
  waiting.shift()!();
  await late;

  const again = await server(t, data);
  const results = [session_id, twin.session_id].map(id =>
    again.ask('POST', `/v1/sessions/${id}/step`, step, 'k'),
  );
  while (waiting.length < 2) await new Promise(resolve => setImmediate(resolve));
  for (const pass of waiting.splice(0)) pass();
  const [one, other] = await Promise.all(results);
  t.equal(one.step, 1);
  t.equal(one.observation, other.observation);
});

function refuse(reply: JsonObject): never {
  throw Object.assign(new Error(String(reply.detail)), reply);
}

t.test('a second server on one folder is refused, and the first keeps its sessions', async t => {
  const data = t.testdir();
  const one = await server(t, data);
  const kept = await one.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' });
  await t.rejects(server(t, data), {
    name: 'FolderInUse',
    message: new RegExp(`in use by another server \\(process ${process.pid} on`),
  });
  await one.server.close();
  const again = await server(t, data);
  t.match(await again.ask('GET', `/v1/sessions/${kept.session_id}`), { step: 0 });
});

t.test('processes that share a database resume each its own', async t => {
  const data = t.testdir();
  const folder = mkdtempSync(join(tmpdir(), 'ragen-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const worker = async (index: number) => {
    const channels = new WorkerChannels(folder, { index, count: 2 });
    const counts = { admit: async () => undefined, change: () => undefined, exchange: () => undefined };
    const app = await createApp(
      { logLevel: 'silent', data, checkpointSeconds: 0 },
      {
        registry: testRegistry(),
        now: () => 1e12,
        membership: { channels, counts, folder, run: 'test', restarts: 0 },
      },
    );
    t.teardown(() => app.server.close());
    return app;
  };
  const before = await server(t, data);
  const { sessions } = await before.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 20 });
  await before.server.close();
  const workers = [await worker(0), await worker(1)];
  for (const { session_id } of sessions) {
    const replies = await Promise.all(
      workers.map(({ server }) => server.inject({ url: `/v1/sessions/${session_id}` })),
    );
    t.same(
      replies.map(reply => reply.statusCode),
      [200, 200],
    );
    const found = workers.map(({ sessions }) => [...sessions.open()].some(({ id }) => id === session_id));
    t.same(found, workerOfSession(session_id, 2) === 0 ? [true, false] : [false, true]);
  }
});
