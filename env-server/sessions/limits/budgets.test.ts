import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import type { JsonObject } from '../../../shared/json.ts';
import { movedClock, silentApp } from '../../../test/app.test-data.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import { createRegistry } from '../../environments/registry.ts';
import { resolveByteLimits } from './budgets.ts';

/** Players that take as much as they can get cost themselves alone. */

t.setTimeout(900_000);

const MB = 2 ** 20;

async function server(t: Test, settings: Partial<Settings> = {}, registry = testRegistry()) {
  const app = await silentApp(
    t,
    { checkpointSeconds: 0, ...settings },
    { registry, clock: movedClock(() => 1e12) },
  );
  const { ask } = app;
  const open = async (env_id: string, more: JsonObject = {}) =>
    String((await ask('POST', '/v1/sessions', { env_id, ...more })).body.session_id);
  /** Does the same many times, by batches. */
  const many = async (count: number, item: (index: number) => object) => {
    for (let done = 0; done < count; done += 4096) {
      const items = Array.from({ length: Math.min(4096, count - done) }, (_, i) => item(done + i));
      const { status } = await ask('POST', '/v1/batch', { items });
      if (status !== 200) throw new Error(`the batch was answered with ${status}`);
    }
  };
  return { ...app, open, many };
}

/** Its state is a text as long as the action says. */
const swelling = (step: 'now' | 'later'): AnyEnvironment => {
  const [model] = testRegistry()
    .list()
    .filter(({ spec }) => spec.id === 'test/Faulty-v0');
  return {
    ...model,
    spec: { ...model.spec, id: `test/Swelling-${step}-v0`, maxEpisodeSteps: 1000 },
    reset: () => ({ text: '' }),
    observe: () => 'a text',
    step(_state, action, rng) {
      const transition = {
        state: { text: 'x'.repeat(Number(action)), draw: rng.uint32() },
        reward: 0,
        terminated: false,
        info: { success: false, action_is_valid: true, action_is_effective: true },
      };
      return step === 'now' ? transition : Promise.resolve(transition);
    },
  } as AnyEnvironment;
};

t.test('limits of 0 are shares of the heap, and sessions never get all of it', async t => {
  const none = { maxBytes: 0, maxBytesPerClient: 0, maxBytesPerSession: 0 };
  const heap = 1000 * MB;
  const limits = resolveByteLimits(none, heap);
  t.ok(limits.maxBytes <= heap / 2 && limits.maxBytesPerClient < limits.maxBytes);
  t.ok(limits.maxBytesPerSession < limits.maxBytesPerClient / 10);
  t.equal(resolveByteLimits({ ...none, maxBytes: 5 }, heap).maxBytes, 5);
});

t.test(
  'episodes that reset themselves drop their past, and snapshots share theirs: memory stays small',
  async t => {
    const { ask, open, many, sessions } = await server(t);
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let player = 0; player < 3; player++) {
      const session_id = await open('FrozenLake-v0', { wrappers: [{ name: 'auto_reset' }], seed: player });
      for (let round = 0; round < 8; round++) {
        await many(2048, i => ({ op: 'step', session_id, action: ['Left', 'Right', 'Up', 'Down'][i % 4] }));
        await many(128, () => ({ op: 'snapshot', session_id }));
      }
      const { memory } = (await ask('GET', `/v1/sessions/${session_id}`)).body;
      t.ok(memory.bytes < 4 * MB, `1,024 snapshots and 16,384 steps take ${memory.bytes} bytes`);
    }
    gc();
    const grown = process.memoryUsage().heapUsed - before;
    t.ok(sessions.bytes.used < 12 * MB, `${sessions.bytes.used} bytes by the server's count`);
    t.ok(grown < sessions.bytes.used + 24 * MB, `${grown} bytes in fact`);
  },
);

function gc(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

t.test('the trajectory after an automatic reset begins there, and snapshots of it stay exact', async t => {
  const { ask, open } = await server(t);
  const id = await open('FrozenLake-v0', { wrappers: [{ name: 'auto_reset' }], seed: 3 });
  const step = async (action: string) => (await ask('POST', `/v1/sessions/${id}/step`, { action })).body;
  const play = async (count: number) => {
    const seen: unknown[] = [];
    for (let i = 0; i < count; i++) {
      const { episode_id: _, ...result } = await step(['Right', 'Down', 'Left'][i % 3]);
      seen.push(result);
    }
    return seen;
  };
  await play(200);
  let last = await step('Up');
  while (!last.terminated && !last.truncated) last = await step('Down');
  const live = [await step('Left'), await step('Right')];
  const { records } = (
    (await ask('POST', '/v1/batch', { items: [{ op: 'trajectory', session_id: id }] })).body as {
      results: { result: { records: JsonObject[] } }[];
    }
  ).results[0].result;
  t.match(records[0], { type: 'reset', step: last.step, observation: last.observation });
  t.match(
    records.slice(1),
    live.map(({ step, observation, reward }) => ({ type: 'step', step, observation, reward })),
  );
  t.equal(records.length, 3, 'what came before is forgotten');
  const { snapshot_id } = (await ask('POST', `/v1/sessions/${id}/snapshot`)).body;
  const future = await play(150);
  await ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id });
  t.same(await play(150), future);
});

t.test(
  'an operation on a session at its budget is refused before it runs, and continues after a reset',
  async t => {
    const registry = createRegistry();
    for (const environment of [swelling('now'), swelling('later')]) registry.register(environment);
    const { ask, open } = await server(t, { maxBytesPerSession: MB }, registry);
    for (const env_id of ['test/Swelling-now-v0', 'test/Swelling-later-v0']) {
      const url = `/v1/sessions/${await open(env_id)}`;
      const twin = `/v1/sessions/${await open(env_id, { seed: (await ask('GET', url)).body.seed })}`;
      const step = (to: string, length: number) => ask('POST', `${to}/step`, { action: String(length) });
      await step(url, 300_000);
      await step(twin, 300_000);
      for (let i = 0; i < 2; i++) t.equal((await ask('POST', `${url}/snapshot`)).status, 201);
      const refused = await ask('POST', `${url}/snapshot`);
      t.match(refused, { status: 507, body: { code: 'session_budget_exceeded' } });
      if (env_id.includes('later')) {
        t.match((await step(url, 900_000)).body, { code: 'session_budget_exceeded' });
        t.match((await ask('GET', url)).body, { step: 1, memory: { limit_bytes: MB } });
      }
      t.same(
        (await step(url, 10)).body.step,
        (await step(twin, 10)).body.step,
        'it continues as if it had not been refused',
      );
      const structured = async (of: string) => (await ask('GET', of)).body.structured;
      t.same(await structured(url), await structured(twin));
      t.equal((await ask('POST', `${url}/reset`)).status, 200);
    }
  },
);

t.test('a token and the server have budgets, and closed sessions give their bytes back', async t => {
  const registry = createRegistry();
  registry.register(swelling('later'));
  const env_id = 'test/Swelling-later-v0';
  const { ask, sessions } = await server(t, { maxBytes: 12 * MB, maxBytesPerClient: 10 * MB }, registry);
  const ids: string[] = [];
  let refused: { status: number; headers: object; body: JsonObject } | undefined;
  while (!refused && ids.length < 200) {
    const created = await ask('POST', '/v1/sessions', { env_id });
    const id = String(created.body.session_id);
    if (created.status === 201) ids.push(id);
    const stepped =
      created.status === 201 && (await ask('POST', `/v1/sessions/${id}/step`, { action: '250000' }));
    refused = [created, stepped].find(reply => reply && reply.status >= 400) || undefined;
  }
  t.match(refused, { status: 429, body: { code: 'token_budget_exceeded' }, headers: { 'retry-after': '1' } });
  t.ok(ids.length < 50, `${ids.length} sessions with 250,000 bytes`);
  t.match(await ask('POST', '/v1/sessions', { env_id }), {
    status: 429,
    body: { code: 'token_budget_exceeded' },
  });
  t.ok(sessions.bytes.used <= 12 * MB);
  for (const id of ids) await ask('DELETE', `/v1/sessions/${id}`);
  t.equal(sessions.bytes.used, 0, 'nothing is left');
  t.equal((await ask('POST', '/v1/sessions', { env_id })).status, 201);
  const full = await server(t, { maxBytes: 3000 }, testRegistry());
  t.match(await full.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count: 2 }), {
    status: 503,
    body: { code: 'server_budget_exceeded' },
    headers: { 'retry-after': '1' },
  });
  t.equal(full.sessions.size, 0);
});

t.test('bytes are counted back to nothing over resets, restores, clones and keys', async t => {
  const { ask, open, sessions } = await server(t);
  const id = await open('Game2048-v0');
  const url = `/v1/sessions/${id}`;
  for (let i = 0; i < 100; i++) await ask('POST', `${url}/step`, { action: i % 2 ? 'Left' : 'Down' });
  const { snapshot_id } = (await ask('POST', `${url}/snapshot`)).body;
  const [{ session_id }] = (await ask('POST', `${url}/clone`)).body.sessions;
  for (let round = 0; round < 3; round++) {
    await ask('POST', `${url}/restore`, { snapshot_id });
    for (let i = 0; i < 80; i++) await ask('POST', `${url}/step`, { action: 'Up' });
    await ask('POST', `/v1/sessions/${session_id}/step`, { action: 'Up' });
  }
  const { bytes } = (await ask('GET', url)).body.memory;
  t.ok(bytes < 40_000, `${bytes} bytes`);
  await ask('POST', `${url}/reset`);
  for (const one of [id, session_id]) await ask('DELETE', `/v1/sessions/${one}`);
  t.equal(sessions.bytes.used, 0);
});

t.test('40 keyed frames that are sent again after the connection broke are carried out once', async t => {
  const { server: app, ask, open } = await server(t);
  const session_id = await open('FrozenLake-v0', { wrappers: [{ name: 'auto_reset' }] });
  const origin = await app.listen({ port: 0, host: '127.0.0.1' });
  const results: unknown[][] = [];
  for (let attempt = 0; attempt < 2; attempt++) {
    const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`, 'ragen.json');
    const replies: JsonObject[] = [];
    socket.on('message', text => replies.push(JSON.parse(text.toString())));
    await new Promise(resolve => socket.once('open', resolve));
    for (let id = 0; id < 40; id++) {
      socket.send(JSON.stringify({ id, op: 'step', session_id, action: 'Left', request_key: `k${id}` }));
    }
    await until(() => replies.length === 40);
    results.push(replies.map(({ result }) => result));
    socket.terminate();
  }
  t.same(results[1], results[0]);
  t.match((await ask('GET', `/v1/sessions/${session_id}`)).body, { step: 40 });
});
