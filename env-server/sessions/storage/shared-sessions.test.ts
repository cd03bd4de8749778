import t, { type Test } from 'tap';
import { type TestApp, testApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import { lacksValkey, type TestValkey, testValkey } from '../../store/valkey.test-data.ts';
import type { SharedSessions } from './shared-sessions.ts';

/** Two servers on one store, in one process. */

const COUNTER = { env_id: 'test/Counter-v0' };

async function servers(
  t: Test,
  settings: Partial<Settings> = {},
  given?: TestValkey,
): Promise<[a: TestApp, b: TestApp, valkey: TestValkey]> {
  const valkey = given ?? (await testValkey(t));
  const both = { ...settings, store: valkey.address };
  return [await listening(t, both), await listening(t, both), valkey];
}

const open = async ({ ask }: TestApp, more: object = {}): Promise<string> => {
  const { body, status, text } = await ask('POST', '/v1/sessions', { ...COUNTER, ...more });
  if (status !== 201) throw new Error(text);
  return body.session_id as unknown as string;
};
const step = ({ ask }: TestApp, id: string, more: object = {}, headers = {}) =>
  ask('POST', `/v1/sessions/${id}/step`, { action: 'add', ...more }, headers);

t.test('a session that one server opened is played at both, alternating', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a, { config: { goal: 50, max_steps: 2000 } });
  for (let n = 1; n <= 20; n++) t.match(await step(n % 2 ? b : a, id), { status: 200, body: { step: n } });
  t.match(await a.ask('GET', `/v1/sessions/${id}`), { body: { step: 20 } });
  t.match((await b.ask('GET', '/v1/sessions')).body.sessions, [{ session_id: id, step: 20 }]);
  t.equal((await b.ask('DELETE', `/v1/sessions/${id}`)).status, 204);
  t.match(await step(a, id), { status: 410, body: { code: 'session_closed' } });
  t.equal((await a.ask('GET', '/v1/sessions')).body.sessions.length, 0);
});

t.test('a list has a session that moves while it is made', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a);
  const { store } = a.sessions.recorder as SharedSessions;
  const isWriter = store.isWriter.bind(store);
  store.isWriter = async (...given) => {
    store.isWriter = isWriter;
    const found = await isWriter(...given);
    // The copy of the list leaves memory, and another takes its place.
    t.equal((await step(b, id)).status, 200);
    t.equal((await step(a, id)).status, 200);
    return found;
  };
  t.match((await a.ask('GET', '/v1/sessions')).body.sessions, [{ session_id: id, step: 2 }]);
  t.equal(store.isWriter, isWriter, 'the list asked');
});

t.test(
  'snapshots, restores, resets, clones and trajectories are the same at both',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a, { seed: 5, config: { goal: 50, max_steps: 2000 } });
    await step(b, id);
    const { snapshot_id } = (await a.ask('POST', `/v1/sessions/${id}/snapshot`)).body;
    await step(b, id);
    await step(a, id);
    const restored = await b.ask('POST', `/v1/sessions/${id}/restore`, { snapshot_id } as never);
    t.match(restored, { status: 200, body: { step: 1 } });
    const clones = await a.ask('POST', `/v1/sessions/${id}/clone`, { count: 2 });
    const [first] = clones.body.sessions as unknown as { session_id: string }[];
    t.match(await step(b, first.session_id), { body: { step: 2 } });
    t.match(await step(a, id), { body: { step: 2 } }, 'the original is where it was');
    const trajectory = `/v1/sessions/${id}/trajectory`;
    t.equal((await a.ask('GET', trajectory)).text, (await b.ask('GET', trajectory)).text);
    t.match(await b.ask('POST', `/v1/sessions/${id}/reset`, { seed: 6 }), { body: { step: 0, seed: 6 } });
    t.match(await step(a, id), { body: { step: 1 } });
  },
);

t.test(
  'operations on a session run in the order of arrival, reads and clones too',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a, { config: { goal: 50, max_steps: 2000 } });
    const session = { session_id: id };
    const add = { op: 'step', ...session, action: 'add' };
    const items = [
      { op: 'get', ...session },
      add,
      { op: 'clone', ...session },
      add,
      { op: 'get', ...session },
      add,
    ];
    for (const [index, server] of [a, b, b, a].entries()) {
      const { body } = await server.ask('POST', '/v1/batch', { items } as never);
      const results = body.results as unknown as {
        result: { step: number; sessions?: { step: number }[] };
      }[];
      const steps = results.map(({ result }) => result.sessions?.[0].step ?? result.step);
      t.same(
        steps.map(n => n - 3 * index),
        [0, 1, 1, 2, 2, 3],
      );
    }
  },
);

t.test('a checkpoint in between changes nothing', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a, { config: { goal: 400, max_steps: 2000 } });
  for (let n = 1; n <= 150; n++) await step(a, id, {}, { 'idempotency-key': `k${n}` });
  t.match(await step(b, id), { body: { step: 151 } });
  t.match(await step(b, id, {}, { 'idempotency-key': 'k150' }), { body: { step: 150 } }, 'the reply of then');
  t.match(await step(a, id), { body: { step: 152 } });
});

t.test('a request key counts at every server', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const key = { 'idempotency-key': 'one' };
  const opened = await a.ask('POST', '/v1/sessions', COUNTER, key);
  const again = await b.ask('POST', '/v1/sessions', COUNTER, key);
  t.equal(opened.body.session_id, again.body.session_id);
  t.match(await b.ask('POST', '/v1/sessions', { ...COUNTER, seed: 1 }, key), {
    body: { code: 'key_reused' },
  });
  const id = opened.body.session_id as unknown as string;
  t.match(await step(a, id, {}, key), { body: { step: 1 } });
  t.match(await step(b, id, {}, key), { body: { step: 1 } });
  t.match(await step(b, id, { expected_step: 2 }), { body: { step: 2 } });
  t.match(await step(a, id, { expected_step: 2 }), { status: 409, body: { code: 'wrong_step' } });
});

t.test('limits on open sessions count for all servers', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t, { maxSessions: 3 });
  await open(a, { count: 2 });
  t.match(await b.ask('POST', '/v1/sessions', { ...COUNTER, count: 2 }), {
    status: 429,
    body: { code: 'too_many_sessions' },
  });
  t.equal(b.sessions.size, 0, 'nothing of the refused group stays');
  const id = await open(b);
  t.match(await a.ask('POST', '/v1/sessions', COUNTER), { body: { code: 'too_many_sessions' } });
  await a.ask('DELETE', `/v1/sessions/${id}`);
  await open(b);
});

t.test('all servers offer a custom environment at once', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const definition = {
    kind: 'tabular',
    title: 'Coin',
    instruction: 'Choose.',
    max_episode_steps: 1,
    actions: ['Heads', 'Tails'],
    start: { table: 1 },
    states: {
      table: {
        text: 'In the air.',
        transitions: {
          Heads: [{ to: 'won', probability: 1, reward: 1 }],
          Tails: [{ to: 'won', probability: 1 }],
        },
      },
      won: { text: 'Done.', success: true },
    },
  };
  t.equal((await a.ask('POST', '/v1/envs', { env_id: 'me/Coin-v0', definition })).status, 201);
  const opened = await b.ask('POST', '/v1/sessions', { env_id: 'me/Coin-v0' });
  t.equal(opened.status, 201, opened.text);
  const path = `/v1/sessions/${opened.body.session_id}/step`;
  t.match(await a.ask('POST', path, { action: 'Heads' }), { body: { reward: 1, terminated: true } });
  t.match(await b.ask('DELETE', '/v1/envs/me%2FCoin-v0'), { status: 409 }, 'its sessions are counted');
});

t.test('frames and batches alternate between servers', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const ids = await Promise.all([
    open(a, { config: { goal: 9, max_steps: 2000 } }),
    open(b, { config: { goal: 9, max_steps: 2000 } }),
  ]);
  const [one, two] = [await dial(t, a, '/v1/ws'), await dial(t, b, '/v1/ws')];
  for (let n = 1; n <= 6; n++) {
    const wire = n % 2 ? one : two;
    const items = ids.map(session_id => ({ op: 'step', session_id, action: 'add' }));
    wire.send({ id: n, op: 'batch', items });
    t.match(await wire.next(), {
      id: n,
      ok: true,
      result: { results: ids.map(() => ({ ok: true, result: { step: n } })) },
    });
  }
});

t.test(
  'a batch answers for each of its sessions, also where another server took or closed some of them',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const [own, taken, closed] = [await open(a), await open(a), await open(a)];
    await step(b, taken);
    await b.ask('DELETE', `/v1/sessions/${closed}`);
    const one = (op: string, session_id: string, more: object = {}) => ({ op, session_id, ...more });
    const items = [own, closed, taken].flatMap(id => [
      one('step', id, { action: 'add', request_key: 'k' }),
      one('clone', id),
      one('step', id, { action: 'add', expected_step: 9 }),
      one('get', id),
    ]);
    const { body } = await a.ask('POST', '/v1/batch', { items } as never);
    const said = (body.results as unknown as { result?: { step?: number }; error?: { code: string } }[]).map(
      ({ result, error }) => error?.code ?? result?.step ?? 'clone',
    );
    t.same(said, [
      ...[1, 'clone', 'wrong_step', 1],
      ...Array(4).fill('session_closed'),
      ...[2, 'clone', 'wrong_step', 2],
    ]);
    for (const [id, steps] of [
      [own, 1],
      [taken, 2],
    ] as const)
      t.match(await b.ask('GET', `/v1/sessions/${id}`), { body: { step: steps } });
    t.match(await step(b, taken, {}, { 'idempotency-key': 'k' }), { body: { step: 2 } }, 'its reply of then');
  },
);

t.test('a server that stood still never answers from an old state', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a, { config: { goal: 50, max_steps: 2000 } });
  await step(a, id);
  await step(b, id);
  await step(b, id);
  // The first server still has the session as it was after one step.
  t.equal(a.sessions.get(id)?.episode.stepCount, 1);
  const [read, list] = await Promise.all([a.ask('GET', `/v1/sessions/${id}`), b.ask('GET', '/v1/sessions')]);
  t.match(read, { body: { step: 3 } });
  t.match(list.body.sessions, [{ step: 3 }]);
  await step(b, id);
  t.match(
    await step(a, id, { expected_step: 5 }),
    { body: { step: 5 } },
    'a refusal from an old state is none',
  );
});

t.test(
  'many clients that play the same session at both servers take each step once',
  { skip: lacksValkey },
  async t => {
    const [a, b] = await servers(t);
    const id = await open(a, { config: { goal: 1000, max_steps: 2000 } });
    const steps: number[] = [];
    const play = async (app: TestApp, client: number) => {
      for (let n = 0; n < 15; n++) {
        const reply = await step(app, id, {}, { 'idempotency-key': `${client}.${n}` });
        if (reply.status === 200) steps.push(reply.body.step as unknown as number);
        else if (reply.status === 503) n--;
        else t.fail(reply.text);
      }
    };
    await Promise.all([play(a, 1), play(b, 2), play(a, 3), play(b, 4)]);
    t.same(
      steps.toSorted((x, y) => x - y),
      Array.from({ length: 60 }, (_, i) => i + 1),
    );
  },
);

t.test('another client has no session of the first', { skip: lacksValkey }, async t => {
  const { hashToken } = await import('../../transports/access/auth.ts');
  const tokens = JSON.stringify(
    ['x', 'y'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] })),
  );
  const [a, b] = await servers(t, { tokens });
  const as = (name: string) => ({ authorization: `Bearer ${name}` });
  const opened = await a.ask('POST', '/v1/sessions', COUNTER, as('x'));
  const path = `/v1/sessions/${opened.body.session_id}`;
  t.match(await b.ask('POST', `${path}/step`, { action: 'add' }, as('y')), { status: 404 });
  t.match(await b.ask('DELETE', path, undefined, as('y')), { status: 404 });
  t.equal((await b.ask('GET', '/v1/sessions', undefined, as('y'))).body.sessions.length, 0);
  t.match(await b.ask('POST', `${path}/step`, { action: 'add' }, as('x')), { status: 200 });
});

t.test(
  'a store that restarts loses nothing that it kept; a dead one gives 503',
  { skip: lacksValkey },
  async t => {
    const [a, b, valkey] = await servers(t);
    const id = await open(a, { config: { goal: 50, max_steps: 2000 } });
    await step(a, id);
    await valkey.restart('SIGKILL');
    await until(async () => (await step(a, id)).status === 200);
    t.match(
      await a.ask('GET', `/v1/sessions/${id}`),
      { body: { step: 2 } },
      'the server that has it continues',
    );
    await until(async () => (await b.ask('GET', '/readyz')).status === 200);
    t.match(await step(b, id), { status: 200, body: { step: 3 } }, 'and it is taken from there as it is');
    await valkey.stop();
    await until(async () => (await step(b, id)).status === 503);
    const refused = await step(a, id);
    t.match(refused, { status: 503, body: { code: 'storage_failed' }, headers: { 'retry-after': /\d/ } });
    t.equal((await a.ask('GET', '/readyz')).status, 503);
  },
);

t.test('a server that ends leaves its sessions to the others', { skip: lacksValkey }, async t => {
  const [a, b] = await servers(t);
  const id = await open(a, { config: { goal: 50, max_steps: 2000 } });
  for (let n = 0; n < 5; n++) await step(a, id);
  await a.shutDown(1000);
  t.match(await step(b, id), { status: 200, body: { step: 6 } });
});

t.test('a server alone with a store starts again with its sessions', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const first = await testApp(t, { store: valkey.address });
  const id = await open(first);
  await step(first, id);
  await first.server.close();
  const second = await testApp(t, { store: valkey.address });
  t.match(await step(second, id), { status: 200, body: { step: 2 } });
  t.ok(hostOf(second));
});
