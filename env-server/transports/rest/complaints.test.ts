import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { type Body, isProblem, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';
import { startServer } from '../../../test/process.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, listening } from '../../../test/wire.test-data.ts';
import { EXAMPLES } from '../../custom/examples.ts';

/** Complaints of users of other environment servers; more in websocket, semantics, exposure and custom/isolation. */

t.setTimeout(900_000);

const PROTOCOLS = ['ragen.json', 'ragen.msgpack'] as const;

async function letThrough(count: number): Promise<void> {
  for (let passed = 0; passed < count; passed++) {
    while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
    waiting.shift()!();
  }
}

for (const protocol of PROTOCOLS) {
  t.test(`${protocol}: a timeout does not shift the replies that come after it`, async t => {
    const app = await listening(t);
    const { send, next, replies } = await dial(t, app, '/v1/ws', { protocol });
    const slow = await app.open({ env_id: 'test/Slow-v0' });
    const quick = await app.open();
    send({ id: 'late', op: 'step', session_id: slow, action: 'add', timeout_ms: 1, request_key: 'k' });
    t.match(await next(), {
      id: 'late',
      ok: false,
      error: { code: 'step_timeout', retryable: true, retry_after_s: 1 },
    });
    for (let step = 1; step <= 3; step++) {
      send({ id: step, op: 'step', session_id: quick, action: step === 2 ? 'draw' : 'add' });
      t.match(await next(), { id: step, result: { session_id: quick, step } });
    }
    await letThrough(1);
    send({ id: 'again', op: 'step', session_id: slow, action: 'add', request_key: 'k' });
    t.match(await next(), { id: 'again', ok: true, result: { session_id: slow, step: 1 } });
    t.equal(replies.length, 5, 'one reply for each frame');
  });

  t.test(`${protocol}: being full is an answer, not a closed socket, and passes`, async t => {
    const app = await listening(t, { maxSessions: 2 });
    const { send, next, socket } = await dial(t, app, '/v1/ws', { protocol });
    const ids: string[] = [];
    for (let id = 0; id < 3; id++) {
      send({ id, op: 'create', env_id: 'test/Counter-v0' });
      const reply = await next();
      if (id < 2) ids.push(String(reply.result.session_id));
      else {
        t.match(reply, {
          id: 2,
          ok: false,
          error: {
            status: 429,
            code: 'too_many_sessions',
            retry_after_s: 1,
            detail: /limit of 2 sessions on this server/,
          },
        });
      }
    }
    t.equal(socket.readyState, socket.OPEN);
    send({ id: 3, op: 'close', session_id: ids[0] });
    send({ id: 4, op: 'create', env_id: 'test/Counter-v0' });
    t.match([await next(), await next()], [{ id: 3 }, { id: 4, ok: true }]);
  });

  t.test(`${protocol}: the end of an episode is not lost in its automatic reset`, async t => {
    const app = await listening(t);
    const { send, next } = await dial(t, app, '/v1/ws', { protocol });
    send({
      id: 0,
      op: 'create',
      env_id: 'test/Counter-v0',
      config: { goal: 2 },
      wrappers: [{ name: 'auto_reset' }],
    });
    const { session_id } = (await next()).result;
    send({ id: 1, op: 'step', session_id, action: 'add' });
    send({ id: 2, op: 'step', session_id, action: 'add' });
    send({ id: 3, op: 'step', session_id, action: 'add' });
    t.match(
      [await next(), await next(), await next()],
      [
        { id: 1, result: { observation: /^1\/2/, terminated: false } },
        {
          id: 2,
          result: {
            observation: /^0\/2/,
            reward: 1,
            terminated: true,
            info: { final_observation: /^2\/2/, final_info: { success: true } },
          },
        },
        { id: 3, result: { observation: /^1\/2/ } },
      ],
    );
  });
}

t.test('many sessions are open at once without any setting', async t => {
  const { ask, sessions } = await testApp(t);
  const items = Array.from({ length: 20 }, () => ({ op: 'create', env_id: 'test/Counter-v0', count: 100 }));
  const { body } = await ask('POST', '/v1/batch', { items });
  t.ok((body.results as unknown as { ok: boolean }[]).every(({ ok }) => ok));
  t.equal(sessions.size, 2000);
});

t.test('a seed is kept or refused, never ignored', async t => {
  const { ask } = await testApp(t);
  const create = async (env_id: string, seed: number) =>
    (await ask('POST', '/v1/sessions', { env_id, seed })).body;
  const [first, again, other] = [
    await create('test/Counter-v0', 1),
    await create('test/Counter-v0', 1),
    await create('test/Counter-v0', 2),
  ];
  t.equal(again.observation, first.observation);
  t.not(other.observation, first.observation);
  const refused = await ask('POST', '/v1/sessions', { env_id: 'test/Held-v0', seed: 1 });
  isProblem(t, refused, 'invalid_request');
  t.match(refused.body.errors, [{ pointer: '/seed', detail: /takes no seed/ }]);
  const held = await ask('POST', '/v1/sessions', { env_id: 'test/Held-v0' });
  t.match(
    (await ask('POST', `/v1/sessions/${held.body.session_id}/reset`, { seed: 1 })).body.code,
    'invalid_request',
  );
});

t.test('every transport delivers what an environment returns besides the observation', async t => {
  const app = await listening(t);
  const wrappers = [{ name: 'record' }];
  const info = {
    success: true,
    action_is_valid: true,
    episode: { return: 1, length: 1, steps: [{ action: 'add' }] },
  };
  const open = async () => String(await app.open({ config: { goal: 1 }, wrappers }));
  const step = async () => ({ op: 'step', session_id: await open(), action: 'add' });
  const id = await open();
  t.match((await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add' })).body.info, info);
  t.match((await app.ask('GET', `/v1/sessions/${id}`)).body.info, info);
  t.match(JSON.parse((await app.ask('GET', `/v1/sessions/${id}/trajectory`)).text.split('\n')[1]).info, info);
  const { body } = await app.ask('POST', '/v1/batch', { items: [await step()] });
  t.match(body.results, [{ result: { info } }]);
  for (const protocol of PROTOCOLS) {
    const { send, next } = await dial(t, app, '/v1/ws', { protocol });
    send({ id: 1, ...(await step()) });
    t.match((await next()).result.info, info, protocol);
  }
});

t.test('a member of a group that never answers delays neither the group nor its end', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app, '/v1/ws');
  send({ id: 0, op: 'create', env_id: 'test/Slow-v0', count: 3, group_id: 'g' });
  const { result } = await next();
  const ids = (result.sessions as unknown as Body[]).map(({ session_id }) => String(session_id));
  const items = ids.map(session_id => ({ op: 'step', session_id, action: 'add', timeout_ms: 100_000 }));
  send({ id: 1, op: 'batch', items, wait: 2 });
  while (waiting.length < 3) await new Promise(resolve => setImmediate(resolve));
  const [straggler] = waiting.splice(0, 1);
  await letThrough(2);
  t.match(await next(), {
    id: 1,
    result: { pending: [0], results: [{ pending: true }, { ok: true }, { ok: true }] },
  });
  send({ id: 2, op: 'step', session_id: ids[0], action: 'add', timeout_ms: 1 });
  t.match(await next(), { id: 2, error: { code: 'step_timeout' } });
  for (const session_id of ids) send({ id: session_id, op: 'close', session_id });
  for (const session_id of ids) t.match(await next(), { id: session_id, ok: true });
  t.equal(app.sessions.size, 0);
  straggler();
});

t.test('every limit answers 429 with Retry-After and loses nothing', async t => {
  const { ask, open, sessions } = await testApp(t, { maxSessions: 3, maxCustomEnvironments: 1 });
  const over = async (...request: Parameters<typeof ask>) => {
    const reply = await ask(...request);
    t.equal(reply.status, 429, request[1]);
    t.match(reply.headers['retry-after'], /^\d+$/, String(reply.body.code));
    t.equal(reply.body.retry_after_s, Number(reply.headers['retry-after']));
    return String(reply.body.code);
  };
  const id = await open();
  const items = Array.from({ length: 1024 }, () => ({ op: 'snapshot', session_id: id }));
  await ask('POST', '/v1/batch', { items });
  t.equal(await over('POST', `/v1/sessions/${id}/snapshot`), 'too_many_snapshots');

  const slow = await open({ env_id: 'test/Slow-v0', config: { preset: 'long' } });
  const step = { op: 'step', session_id: slow, action: 'draw' };
  const queued = ask('POST', '/v1/batch', { items: new Array(257).fill(step) });
  // A batch takes its turn in slices: all of it is queued before the step that finds no room.
  await until(() => [...sessions.open()].some(session => session.id === slow && session.waiting === 256));
  t.equal(await over('POST', `/v1/sessions/${slow}/step`, { action: 'draw' }), 'too_many_requests');
  await letThrough(257);
  t.ok(((await queued).body.results as unknown as { ok: boolean }[]).every(({ ok }) => ok));
  t.equal((await ask('GET', `/v1/sessions/${slow}`)).body.step, 257);

  await open();
  t.equal(await over('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }), 'too_many_sessions');
  t.equal(await over('POST', `/v1/sessions/${id}/clone`), 'too_many_sessions');
  t.equal(sessions.size, 3);

  t.equal((await ask('POST', '/v1/envs', EXAMPLES.tabular.value)).status, 201);
  t.equal(
    await over('POST', '/v1/envs', { ...EXAMPLES.tabular.value, env_id: 'me/Other-v0' }),
    'too_many_environments',
  );
});

/** Processes below one, as Linux lists them. */
function descendants(pid: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [, parent] = /\) \S (\d+)/.exec(readFileSync(`/proc/${name}/stat`, 'utf8')) ?? [];
      parents.set(Number(name), Number(parent));
    } catch {
      // It has ended meanwhile.
    }
  }
  const below = (of: number): number[] =>
    [...parents].flatMap(([child, parent]) => (parent === of ? [child, ...below(child)] : []));
  return below(pid);
}

/** Processor time, in hundredths of a second, that only a program in its loop takes. */
const LOOPING_TICKS = 50;

function ticksOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return Number(fields[11]);
  } catch {
    return 0;
  }
}

const lives = (pid: number): boolean => {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
};

for (const signal of ['SIGINT', 'SIGKILL'] as const) {
  t.test(
    `no sandbox outlives the server after ${signal}`,
    { skip: process.platform !== 'linux' },
    async t => {
      const { ask, child, end } = await startServer(t, ['--grace-seconds', '0'], {
        RAGEN_DEEPCODER_UNISOLATED: '1',
      });
      await ask('POST', '/v1/envs', EXAMPLES.script.value);
      await ask('POST', '/v1/sessions', { env_id: 'demo/Guess-v0' });
      const config = { cpu_s: 30, wall_s: 60, total_s: 60 };
      const created = await ask('POST', '/v1/sessions', { env_id: 'DeepCoder-v0', config });
      if (created.status !== 201) {
        t.pass('DeepCoder needs Python', { skip: String(created.body.detail) });
        return;
      }
      const program = '```python\nwhile True:\n    pass\n```';
      ask('POST', `/v1/sessions/${created.body.session_id}/step`, { action: program }).catch(() => undefined);
      let found: number[] = [];
      while (!found.some(pid => ticksOf(pid) > LOOPING_TICKS)) {
        await new Promise(resolve => setTimeout(resolve, 50));
        found = descendants(child.pid!);
      }
      await end(signal);
      await until(() => !found.some(lives));
      t.pass(`${found.length} processes ended`);
    },
  );
}
