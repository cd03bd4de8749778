import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { isAlive } from '../../shared/dashboard/is-alive.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import type { Body } from '../../test/app.test-data.ts';
import { type ServerProcess, startServer } from '../../test/process.test-data.ts';
import { SELDOM_MS, until } from '../../test/until.test-data.ts';
import { DATABASE_FILE } from '../persistence/database.ts';
import { workerOfSession } from '../sessions/placement.ts';
import type { StoredHead } from '../sessions/storage/stored-session.ts';
import { dial, pidsOf } from './workers.test-data.ts';

/** Several processes behind one port, through real sockets: each answers any request as one server would. */

t.setTimeout(900_000);

const WORKERS = 2;
const LAKE = { env_id: 'FrozenLake-v0', seed: 1 };
const FLAGS = ['--workers', String(WORKERS), '--log-level', 'info'];

const idOf = ({ body }: { body: Body }) => String(body.session_id);
const worker = (id: string) => workerOfSession(id, WORKERS);

/** A session of each process, and one more. */
async function openInEach({ ask }: ServerProcess, more: JsonObject = {}): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length <= WORKERS || new Set(ids.map(worker)).size < WORKERS) {
    // A key decides which process opens it.
    const key = { 'idempotency-key': `each ${JSON.stringify(more)} ${ids.length}` };
    ids.push(idOf(await ask('POST', '/v1/sessions', { ...LAKE, ...more }, key)));
  }
  return ids;
}

t.test('two processes on one port are one server', async t => {
  const data = t.testdir();
  const server = await startServer(t, [...FLAGS, '--data', data, '--checkpoint-seconds', '0.05']);
  const { ask } = server;
  const ids = await openInEach(server);
  const step = (id: string, action: Json, more: JsonObject = {}, headers = {}) =>
    ask('POST', `/v1/sessions/${id}/step`, { action, ...more }, headers);

  await t.test('either worker answers every request', async t => {
    for (const id of ids) {
      for (let i = 1; i <= 4; i++) {
        t.match(await step(id, 'Left', { expected_step: i }), {
          status: 200,
          body: { session_id: id, step: i },
        });
      }
      t.match(await step(id, 'Left', { expected_step: 9 }), { status: 409, body: { code: 'wrong_step' } });
      t.match(await step(id, {}), { status: 422, body: { errors: [{ pointer: '/action' }] } });
      const lines = (await ask('GET', `/v1/sessions/${id}/trajectory`)).text.trimEnd().split('\n');
      t.equal(lines.length, 5);
      const picture = await fetch(`${server.origin}/v1/sessions/${id}/render?mode=png`);
      t.equal(picture.headers.get('content-type'), 'image/png');
      t.equal(Buffer.from(await picture.arrayBuffer()).toString('latin1', 1, 4), 'PNG');
      t.match(await ask('POST', '/v1/sessions', { ...LAKE, env_id: 'Nothing-v0' }), { status: 404 });
    }
  });

  await t.test('a key is honored wherever it comes', async t => {
    const key = { 'idempotency-key': 'once' };
    const created = await ask('POST', '/v1/sessions', LAKE, key);
    const stepped = await step(ids[0], 'Left', {}, key);
    for (let i = 0; i < 4; i++) {
      t.same((await ask('POST', '/v1/sessions', LAKE, key)).body, created.body);
      t.same((await step(ids[0], 'Left', {}, key)).body, stepped.body);
    }
    t.match(await ask('POST', '/v1/sessions', { ...LAKE, seed: 2 }, key), { body: { code: 'key_reused' } });
  });

  await t.test('a list holds all, oldest first, page by page', async t => {
    const found: string[] = [];
    let cursor = '';
    do {
      const { body } = await ask('GET', `/v1/sessions?limit=2${cursor}`);
      const page = body.sessions as unknown as { session_id: string }[];
      t.ok(page.length <= 2);
      found.push(...page.map(({ session_id }) => session_id));
      cursor = body.next_cursor === null ? '' : `&cursor=${body.next_cursor}`;
    } while (cursor !== '');
    t.equal(new Set(found).size, found.length);
    t.same(found.slice(0, ids.length), ids);
    t.equal(found.length, ids.length + 1);
  });

  await t.test('a watcher sees the sessions of both workers, and how they end', async t => {
    const watched = await openInEach(server, { group_id: 'watched' });
    const shown = new Map<string, Json>();
    const socket = await dial(t, server, ({ result }) => {
      for (const card of result.sessions as unknown as Body[]) shown.set(String(card.session_id), card.ended);
    });
    void socket.ask({ op: 'watch', group_id: 'watched' });
    await until(() => watched.every(id => shown.get(id) === null));
    for (const id of watched) await ask('DELETE', `/v1/sessions/${id}`);
    for (const id of watched) t.equal((await ask('GET', `/v1/sessions/${id}/replay`)).status, 200);
  });

  await t.test('batches and sockets reach sessions of both', async t => {
    const { body } = await ask('POST', '/v1/batch', {
      items: [
        ...ids.map(session_id => ({ op: 'get', session_id })),
        { op: 'get', session_id: 'sUnknown' },
        ...ids.map(session_id => ({ op: 'snapshot', session_id })),
      ],
    });
    const results = body.results as unknown as { ok: boolean; result: Body; error: Body }[];
    t.same(
      results.slice(0, ids.length).map(({ result }) => result.session_id),
      ids,
    );
    t.match(results[ids.length], { ok: false, error: { code: 'unknown_session' } });
    t.ok(results.slice(ids.length + 1).every(({ ok }) => ok));
    const socket = await dial(t, server);
    const replies = await socket.ask(
      ...ids.map(session_id => ({ op: 'reset', session_id, seed: 5 })),
      ...ids.map(session_id => ({ op: 'step', session_id, action: 'Left' })),
      { op: 'batch', items: ids.map(session_id => ({ op: 'clone', session_id, count: 2 })) },
      { op: 'batch', wait: 1, items: ids.map(session_id => ({ op: 'get', session_id })) },
    );
    t.ok(
      replies.every(({ ok }) => ok),
      JSON.stringify(replies),
    );
    t.same(
      replies.slice(ids.length, 2 * ids.length).map(({ result }) => result.step),
      ids.map(() => 1),
    );
    const clones = replies[2 * ids.length].result.results as unknown as { result: { sessions: Body[] } }[];
    clones.forEach(({ result }, i) => {
      for (const { session_id } of result.sessions) t.equal(worker(String(session_id)), worker(ids[i]));
    });
  });

  await t.test('an environment registered with one is known to all at once', async t => {
    const definition = { kind: 'composed', env_id: 'FrozenLake-v0', title: 'Mine' };
    for (const revision of [1, 2]) {
      const path = revision === 1 ? '/v1/envs' : '/v1/envs/me%2FLake-v0';
      const sent = await ask(
        revision === 1 ? 'POST' : 'PUT',
        path,
        revision === 1
          ? { env_id: 'me/Lake-v0', definition }
          : { definition: { ...definition, title: 'New' } },
        { 'idempotency-key': `register ${revision}` },
      );
      t.match(sent.body, { revision, durable: true }, sent.text);
      for (let i = 0; i < 4; i++) {
        const { body } = await ask('GET', '/v1/envs/me%2FLake-v0');
        t.equal(body.title, revision === 1 ? 'Mine' : 'New');
      }
    }
    const opened = await openInEach(server, { env_id: 'me/Lake-v0' });
    for (let i = 0; i < opened.length; i++) {
      const refused = await ask('DELETE', '/v1/envs/me%2FLake-v0');
      t.match(refused.body, { code: 'environment_in_use' });
      t.match(refused.body.detail, `${opened.length - i} open sessions`);
      t.equal((await ask('DELETE', `/v1/sessions/${opened[i]}`)).status, 204);
    }
    t.equal((await ask('DELETE', '/v1/envs/me%2FLake-v0')).status, 204);
    for (let i = 0; i < 4; i++) t.equal((await ask('GET', '/v1/envs/me%2FLake-v0')).status, 404);
  });

  await t.test('other protocols, too', async t => {
    const headers = (name: string) => ({ 'x-session-id': name });
    for (const name of ['one', 'two', 'three', ids[0]]) {
      const path = '/compat/openenv/FrozenLake-v0';
      t.equal((await ask('POST', `${path}/reset`, { seed: 3 }, headers(name))).status, 200);
      for (let i = 1; i <= 3; i++) {
        const { body } = await ask('POST', `${path}/step`, { action: { action: 'Left' } }, headers(name));
        t.match(body, { done: Boolean, metadata: { step: i } }, JSON.stringify(body));
        t.match((await ask('GET', `${path}/state`, undefined, headers(name))).body, { step_count: i });
      }
      const wrong = await ask('POST', `${path}/step`, { action: 'no' }, headers(name));
      t.match(wrong, { status: 422, body: { detail: [{ loc: ['body', 'action'] }] } });
    }
    const path = '/compat/openenv/FrozenLake-v0';
    const begun = await ask('POST', `${path}/reset`, { episode_id: 'mine' });
    const unnamed = headers(String(begun.body.metadata.session_id));
    for (let i = 0; i < 4; i++) {
      t.match((await ask('GET', `${path}/state`, undefined, unnamed)).body, { episode_id: 'mine' });
    }
    const { body } = await ask('GET', '/compat/gym/v1/envs/');
    for (const id of ids) t.equal(body.all_envs[id] as unknown, 'FrozenLake-v0');
  });

  /** A call of the Open Reward Standard, whose reply is server-sent events. */
  const orsCall = async ({ ask }: ServerProcess, sid: string) => {
    const call = { name: 'step', input: { action: 'Left' } };
    const { text } = await ask('POST', '/FrozenLake-v0/call', call, { 'x-session-id': sid });
    return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? '{}');
  };
  const orsIds: string[] = [];
  await t.test('sessions of the Open Reward Standard are known to either worker', async t => {
    for (let i = 0; i < 4; i++) {
      const { text } = await ask('POST', '/create_session');
      const [, sid] = /^data: (.+)$/m.exec(text)!;
      const task = { env_name: 'FrozenLake-v0', task_spec: { seed: 7, config: { p_frozen: 1 } } };
      for (let again = 0; again < 2; again++) {
        const created = await ask('POST', '/create', task, { 'x-session-id': sid });
        t.match(created, { status: 200, body: { sid } }, created.text);
      }
      for (let step = 1; step <= 3; step++) {
        t.match(await orsCall(server, sid), { ok: true, output: { metadata: { step } } });
      }
      orsIds.push(sid);
    }
    const tasks = await Promise.all(
      Array.from({ length: 4 }, () => ask('POST', '/FrozenLake-v0/task', { split: 'test', index: 3 })),
    );
    for (const { body } of tasks) t.same(body, tasks[0].body, 'a task is the same everywhere');
  });

  await t.test('metrics are those of both', async t => {
    const { body } = await ask('GET', '/v1/sessions?limit=1000');
    const open = (body.sessions as unknown as Body[]).length;
    for (let i = 0; i < 2; i++) {
      const { text } = await ask('GET', '/metrics');
      t.match(text, `ragen_workers ${WORKERS}\n`);
      t.match(text, `ragen_sessions{env_id="FrozenLake-v0"} ${open}\n`);
      t.match(
        text,
        /ragen_operation_seconds_bucket\{env_id="FrozenLake-v0",operation="step",le="\+Inf"\} \d\d/,
      );
    }
  });

  await t.test('a process that is killed comes back with its sessions as they were stored', async t => {
    const [victim] = ids.map(worker);
    const stands = async () => Promise.all(ids.map(id => ask('GET', `/v1/sessions/${id}`)));
    for (const id of ids) await step(id, 'Left');
    const before = await stands();
    const database = new DatabaseSync(join(data, DATABASE_FILE), { readOnly: true });
    t.teardown(() => database.close());
    const row = database.prepare('SELECT document FROM sessions WHERE session_id = ?');
    // What holds the last change holds all before it.
    await until(() =>
      before.every(({ body }) => {
        const stored = row.get(String(body.session_id)) as { document: string } | undefined;
        if (!stored) return false;
        const { episodes, episode } = JSON.parse(stored.document) as StoredHead;
        const stands = [`${body.session_id}.${episodes}`, episode.step];
        return isDeepStrictEqual(stands, [body.episode_id, body.step]);
      }),
    );
    process.kill(pidsOf(server).get(victim)!, 'SIGKILL');
    const seen = new Set<unknown>();
    await until(async () => {
      try {
        const replies = await stands();
        for (const { body } of replies) seen.add(body.code);
        return replies.every(({ status }) => status === 200);
      } catch {
        // The socket that it had taken.
        return false;
      }
    }, SELDOM_MS);
    seen.delete(undefined);
    t.ok(
      [...seen].every(code => code === 'worker_unavailable'),
      [...seen].join(),
    );
    const after = await stands();
    const status = ({ body }: { body: Body }) => ({ ...body, expires_at: '', memory: '' });
    t.same(after.map(status), before.map(status));
    for (const { body } of after) {
      const next = await step(String(body.session_id), 'Left', { expected_step: Number(body.step) + 1 });
      t.equal(next.status, 200, next.text);
    }
    t.match((await ask('GET', '/metrics')).text, /ragen_worker_restarts_total 1\n/);
    for (const sid of orsIds) {
      t.match(await orsCall(server, sid), { ok: true, output: { metadata: { step: 4 } } }, 'by ORS, too');
    }
  });

  const stands = await Promise.all(ids.map(async id => (await ask('GET', `/v1/sessions/${id}`)).body));
  t.same(await server.end('SIGTERM'), { code: 0, signal: null });
  const again = await startServer(t, ['--data', data]);
  for (const { expires_at: _expiry, memory: _memory, ...stand } of stands) {
    t.match(
      (await again.ask('GET', `/v1/sessions/${stand.session_id}`)).body,
      stand,
      'resumed by one process',
    );
  }
  for (const sid of orsIds) {
    const played = await orsCall(again, sid);
    t.match(played, { ok: true, output: { metadata: { step: 5 } } }, 'sessions of ORS, too');
  }
  t.same(await again.end('SIGTERM'), { code: 0, signal: null });
});

t.test('limits are in common; what hangs is ended, and takes with it what was not stored', async t => {
  const server = await startServer(t, [
    ...FLAGS,
    '--max-sessions',
    '6',
    '--max-sessions-per-environment',
    '5',
    '--worker-silence-seconds',
    '4',
  ]);
  const { ask } = server;
  const ids: string[] = [];
  for (let i = 0; i < 5; i++) ids.push(idOf(await ask('POST', '/v1/sessions', LAKE)));
  for (let i = 0; i < 4; i++) {
    const refused = await ask('POST', '/v1/sessions', LAKE, { 'idempotency-key': String(i) });
    t.match(refused, { status: 429, body: { code: 'too_many_sessions' } });
    t.match(refused.body.detail, /limit of 5 sessions of FrozenLake-v0/);
    t.match(await ask('POST', `/v1/sessions/${ids[i]}/clone`, {}), { status: 429 });
  }
  const last = idOf(await ask('POST', '/v1/sessions', { env_id: 'Bandit-v0' }));
  t.match(
    (await ask('POST', '/v1/sessions', { env_id: 'Bandit-v0' })).body.detail,
    /limit of 6 sessions on this/,
  );
  const shown = await ask('POST', '/compat/openenv/Bandit-v0/mcp', {
    jsonrpc: '2.0',
    id: 1,
    method: 'openenv/session/create',
  });
  t.match(shown.body, { error: { data: { active_sessions: 6, max_sessions: 6 } } });
  await ask('DELETE', `/v1/sessions/${last}`);
  ids.push(idOf(await ask('POST', '/v1/sessions', { env_id: 'Bandit-v0' })));
  t.match(
    await ask('POST', '/v1/envs', {
      env_id: 'me/Other-v0',
      definition: { kind: 'composed', env_id: 'Bandit-v0' },
    }),
    { status: 201, body: { durable: false } },
  );

  const pids = pidsOf(server);
  const victim = worker(ids[0]);
  const gone = ids.filter(id => worker(id) === victim);
  process.kill(pids.get(victim)!, 'SIGSTOP');
  await until(() => !isAlive(pids.get(victim)!));
  await until(async () => {
    try {
      return (await ask('GET', `/v1/sessions/${ids[0]}`)).status === 410;
    } catch {
      return false;
    }
  }, SELDOM_MS);
  for (const id of ids) {
    const { body } = await ask('GET', `/v1/sessions/${id}`);
    if (gone.includes(id)) t.match(body, { code: 'session_lost' });
    else t.match(body, { session_id: id });
  }
  for (const _ of gone) t.equal((await ask('POST', '/v1/sessions', { env_id: 'me/Other-v0' })).status, 201);
  t.equal(
    (await ask('POST', '/v1/sessions', { env_id: 'me/Other-v0' })).status,
    429,
    'the lost do not count',
  );

  await server.end('SIGKILL');
  const survivor = pids.get(1 - victim)!;
  await until(() => !isAlive(survivor));
  t.pass('without its supervisor a worker ends');
});
