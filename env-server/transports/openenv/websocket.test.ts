import { once } from 'node:events';
import t, { type Test } from 'tap';
import type { TestApp } from '../../../test/app.test-data.ts';
import { testRegistry, waiting } from '../../../test/environments.test-data.ts';
import { dial, hostOf, listening, type Wire } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';

const dialEnv = (t: Test, app: Pick<TestApp, 'server'>, envId: string, query = ''): Promise<Wire> =>
  dial(t, app, `/compat/openenv/${envId}/ws${query}`);

const COUNTER = 'test%2FCounter-v0';

/** Sends a frame and gives the reply. */
async function ask({ send, next }: Wire, frame: object | string) {
  send(frame);
  return next();
}

t.test('reset, step, state and close, frame by frame', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, COUNTER);
  const data = { seed: 5, episode_id: 'mine' };
  const first = await ask(wire, { type: 'reset', data });
  t.match(first, {
    type: 'observation',
    data: { observation: { text: /^0\/3 / }, reward: 0, done: false, metadata: { seed: 5 } },
  });
  t.same(Object.keys(first), ['type', 'data']);
  t.match(await ask(wire, { type: 'step', data: { action: 'add' } }), {
    type: 'observation',
    data: {
      observation: { text: /^1\/3 / },
      reward: 1,
      done: false,
      metadata: { step: 1, terminated: false, truncated: false, info: { action_is_valid: true } },
    },
  });
  t.match(await ask(wire, { type: 'state' }), {
    type: 'state',
    data: { episode_id: 'mine', step_count: 1, env_id: 'test/Counter-v0', seed: 5, return: 1 },
  });
  await ask(wire, { type: 'step', data: { action: 'add', metadata: {} } });
  t.match(await ask(wire, { type: 'step', data: { action: 0 } }), {
    data: { reward: 1, done: true, metadata: { terminated: true, info: { success: true } } },
  });
  wire.send({ type: 'close' });
  t.equal((await once(wire.socket, 'close'))[0], 1000);
  t.equal(app.sessions.size, 0);
});

t.test('numbers that are floating-point ones look so', async t => {
  const wire = await dialEnv(t, await listening(t), COUNTER);
  const texts: string[] = [];
  wire.socket.on('message', data => texts.push(String(data)));
  await ask(wire, { type: 'reset' });
  await ask(wire, { type: 'step', data: { action: 'add' } });
  t.match(texts, [/"reward":0\.0,"done":false/, /"reward":1\.0,"done":false/]);
});

t.test('a socket has its session from the start: step and state need no reset', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, COUNTER);
  t.match(await ask(wire, { type: 'state' }), { data: { episode_id: String, step_count: 0 } });
  t.match(await ask(wire, { type: 'step', data: { action: 'draw' } }), { type: 'observation' });
  t.equal(app.sessions.size, 1);
});

t.test(
  'the same seed gives the same episode; null counts as absent; other parameters are reset options',
  async t => {
    const wire = await dialEnv(t, await listening(t), COUNTER);
    const stepReply = async (data: object) =>
      (await ask(wire, { type: 'reset', data })).data.observation.text;
    t.equal(await stepReply({ seed: 9 }), await stepReply({ seed: 9, episode_id: null }));
    t.not(await stepReply({ seed: null }), await stepReply({}));
    t.match(await stepReply({ start: 2 }), /^2\/3 /);
  },
);

t.test('done is terminated or truncated', async t => {
  const wire = await dialEnv(t, await listening(t), COUNTER);
  for (let step = 1; step <= 4; step++) {
    t.match(await ask(wire, { type: 'step', data: { action: 'draw' } }), { data: { done: false } });
  }
  t.match(await ask(wire, { type: 'step', data: { action: 'draw' } }), {
    data: { done: true, metadata: { terminated: false, truncated: true } },
  });
});

t.test('replies come in the order of the messages, however long each takes', async t => {
  const wire = await dialEnv(t, await listening(t), 'test%2FSlow-v0');
  wire.send({ type: 'step', data: { action: 'add' } });
  wire.send({ type: 'step', data: { action: 'add' } });
  wire.send({ type: 'state' });
  wire.send('nonsense');
  for (const count of [1, 2]) {
    while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
    waiting.shift()!();
    t.match(await wire.next(), { data: { metadata: { step: count } } });
  }
  t.match(await wire.next(), { type: 'state', data: { step_count: 2 } });
  t.match(await wire.next(), { type: 'error', data: { code: 'INVALID_JSON' } });
});

t.test('more frames than may wait are all answered', async t => {
  const wire = await dialEnv(t, await listening(t), COUNTER);
  for (let i = 0; i < 500; i++) wire.send({ type: 'reset', data: { seed: i } });
  for (let i = 0; i < 500; i++) t.equal((await wire.next()).data.metadata.seed, i);
});

t.test('each wrong message gets an error that names its fault, and the session lives on', async t => {
  const wire = await dialEnv(t, await listening(t), COUNTER);
  const invalid = (...errors: object[]) => ({
    type: 'error',
    data: { code: 'VALIDATION_ERROR', message: /^Invalid message: ./, errors },
  });
  const cases: [object | string, object][] = [
    ['{"type":', { type: 'error', data: { code: 'INVALID_JSON', message: /^Invalid JSON: / } }],
    [
      { type: 'sing' },
      { data: { code: 'UNKNOWN_TYPE', message: /Unknown message type: sing; known are reset/ } },
    ],
    [{}, { data: { code: 'UNKNOWN_TYPE', message: /Unknown message type: ;/ } }],
    [{ type: 7 }, { data: { code: 'UNKNOWN_TYPE', message: /Unknown message type: 7/ } }],
    ['[]', invalid({ type: 'dict_type', loc: [], msg: String })],
    [
      { type: 'reset', extra: 1 },
      invalid({ type: 'extra_forbidden', loc: ['extra'], msg: /known are type, data/ }),
    ],
    [{ type: 'reset', data: [] }, invalid({ type: 'dict_type', loc: ['data'] })],
    [{ type: 'reset', data: { seed: -1 } }, invalid({ type: 'value_error', loc: ['data', 'seed'] })],
    [{ type: 'reset', data: { seed: 'x' } }, invalid({ loc: ['data', 'seed'] })],
    [
      { type: 'reset', data: { episode_id: 5 } },
      invalid({ type: 'string_type', loc: ['data', 'episode_id'] }),
    ],
    [{ type: 'reset', data: { size: 5 } }, invalid({ loc: ['data', 'size'], msg: /it knows start/ })],
    [{ type: 'step' }, invalid({ type: 'missing', loc: ['data'] })],
    [{ type: 'step', data: 'add' }, invalid({ type: 'dict_type', loc: ['data'] })],
    [{ type: 'step', data: {} }, invalid({ type: 'missing', loc: ['data', 'action'] })],
    [
      { type: 'step', data: { action: 'add', force: 1 } },
      invalid({ type: 'extra_forbidden', loc: ['data', 'force'] }),
    ],
    [{ type: 'step', data: { action: null } }, invalid({ loc: ['data', 'action'], msg: /got null/ })],
    [{ type: 'state', data: {} }, invalid({ type: 'extra_forbidden', loc: ['data'] })],
    [{ type: 'close', data: {} }, invalid({ type: 'extra_forbidden', loc: ['data'] })],
    [{ type: 'mcp' }, invalid({ type: 'missing', loc: ['data'] })],
  ];
  for (const [frame, reply] of cases) t.match(await ask(wire, frame), reply, JSON.stringify(frame));
  t.match(await ask(wire, { type: 'step', data: { action: 'add' } }), { data: { metadata: { step: 1 } } });
});

t.test('an environment that takes no seed refuses one', async t => {
  const wire = await dialEnv(t, await listening(t), 'test%2FHeld-v0');
  t.match(await ask(wire, { type: 'reset', data: { seed: 1 } }), {
    data: { code: 'VALIDATION_ERROR', errors: [{ loc: ['data', 'seed'], msg: /takes no seed/ }] },
  });
  t.match(await ask(wire, { type: 'reset', data: {} }), { data: { metadata: { seed: null } } });
});

t.test(
  'what goes wrong in the environment is an execution error, after which the socket can be used',
  async t => {
    const wire = await dialEnv(t, await listening(t), 'test%2FFaulty-v0');
    t.match(await ask(wire, { type: 'step', data: { action: 'throw' } }), {
      type: 'error',
      data: { code: 'EXECUTION_ERROR', message: /out of order/ },
    });
    t.match(await ask(wire, { type: 'step', data: { action: 'add' } }), {
      data: { code: 'EXECUTION_ERROR', message: /reset the session to begin a new one/ },
    });
    t.match(await ask(wire, { type: 'reset' }), { type: 'observation' });
  },
);

t.test('a full server says so before it hangs up', async t => {
  for (const [limit, max] of [
    [{ maxSessions: 1 }, 1],
    [{ maxSessionsPerEnvironment: 1 }, 1],
    [{ maxSessionsPerClient: 1 }, 1],
  ] as const) {
    const app = await listening(t, limit);
    const first = await dialEnv(t, app, COUNTER);
    await ask(first, { type: 'state' });
    const second = await dialEnv(t, app, COUNTER);
    const closed = once(second.socket, 'close');
    t.match(await second.next(), {
      type: 'error',
      data: {
        code: 'CAPACITY_REACHED',
        message: /limit of 1 session o/,
        active_sessions: 1,
        max_sessions: max,
      },
    });
    t.equal((await closed)[0], 1013);
    first.socket.close();
    await once(first.socket, 'close');
    while (app.sessions.size > 0) await new Promise(resolve => setImmediate(resolve));
    const third = await dialEnv(t, app, COUNTER);
    t.match(await ask(third, { type: 'reset' }), { type: 'observation' }, 'the place was given back');
  }
});

t.test('an environment that cannot begin is a factory error', async t => {
  const registry = testRegistry();
  const counter = registry.get('test/Counter-v0');
  registry.register({
    ...counter,
    spec: { ...counter.spec, id: 'test/Broken-v0' },
    reset() {
      throw new Error('no disk');
    },
  } as AnyEnvironment);
  const app = await createApp({ logLevel: 'silent' }, { registry });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const wire = await dialEnv(t, app, 'test%2FBroken-v0');
  const closed = once(wire.socket, 'close');
  t.match(await wire.next(), {
    type: 'error',
    data: { code: 'FACTORY_ERROR', message: String, factory_name: 'test/Broken-v0' },
  });
  t.equal((await closed)[0], 1011);
  t.equal(app.sessions.size, 0);
});

t.test('a session that is gone is a session error, and the end of the socket', async t => {
  const app = await listening(t, { idleTtlSeconds: 60 });
  const wire = await dialEnv(t, app, COUNTER);
  await ask(wire, { type: 'reset' });
  app.wait(61);
  const closed = once(wire.socket, 'close');
  t.match(await ask(wire, { type: 'step', data: { action: 'add' } }), {
    type: 'error',
    data: { code: 'SESSION_ERROR', message: /expired/ },
  });
  t.equal((await closed)[0], 1011);
});

t.test('a server that goes down opens no sessions', async t => {
  const app = await listening(t);
  app.sessions.shutdown.drain();
  const wire = await dialEnv(t, app, COUNTER);
  t.match(await wire.next(), { data: { code: 'SESSION_ERROR', message: /shutting down/ } });
});

t.test('binary frames are refused', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, COUNTER);
  await ask(wire, { type: 'state' });
  const closed = once(wire.socket, 'close');
  wire.socket.send(Buffer.from('{"type":"state"}'));
  t.match(await wire.next(), { data: { code: 'SESSION_ERROR', message: /must be text/ } });
  await closed;
  t.equal(app.sessions.size, 0);
});

t.test('the session of a socket goes with it, also while a step is in progress', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, 'test%2FSlow-v0');
  wire.send({ type: 'step', data: { action: 'add' } });
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  wire.socket.terminate();
  while (app.sessions.size > 0) await new Promise(resolve => setImmediate(resolve));
  waiting.shift()!();
  t.equal(app.sessions.endings.session_closed, 1);
});

t.test('half-open sockets are cut and their sessions freed', async t => {
  const app = await listening(t, { heartbeatSeconds: 0.05 });
  const { socket } = await dialEnv(t, app, COUNTER);
  socket.pong = () => undefined;
  await once(socket, 'close');
  while (app.sessions.size > 0) await new Promise(resolve => setImmediate(resolve));
  t.pass('no session is left');
});

t.test('with session_id a socket takes up a session and leaves it when it closes', async t => {
  const app = await listening(t);
  const id = await app.open();
  await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
  const wire = await dialEnv(t, app, COUNTER, `?session_id=${id}`);
  t.match(await ask(wire, { type: 'state' }), { data: { session_id: id, step_count: 1 } });
  wire.send({ type: 'close' });
  await once(wire.socket, 'close');
  t.equal((await app.ask('GET', `/v1/sessions/${id}`)).status, 200);

  for (const [envId, sessionId] of [
    [COUNTER, 'nobody'],
    ['test%2FSlow-v0', id],
  ]) {
    const lost = await dialEnv(t, app, envId, `?session_id=${sessionId}`);
    const closed = once(lost.socket, 'close');
    t.match(await lost.next(), {
      type: 'error',
      data: { code: 'SESSION_ERROR', message: RegExp(sessionId) },
    });
    t.equal((await closed)[0], 1011);
  }
});

t.test('a session with wrappers takes the actions of its outermost one', async t => {
  const app = await listening(t);
  const id = await app.open({ wrappers: [{ name: 'action_text' }] });
  const wire = await dialEnv(t, app, COUNTER, `?session_id=${id}`);
  t.match(await ask(wire, { type: 'step', data: { action: '<think>so</think><answer>add</answer>' } }), {
    type: 'observation',
    data: { observation: { text: /^1\/3/ } },
  });
});

t.test('ids are read with their slash encoded or plain; unknown ones do not connect', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, 'test/Counter-v0');
  t.match(await ask(wire, { type: 'state' }), { data: { env_id: 'test/Counter-v0' } });
  await t.rejects(dialEnv(t, app, 'test%2FNobody-v0'), /404/);
});

t.test('pages of another origin are refused', async t => {
  const app = await listening(t);
  const path = `/compat/openenv/${COUNTER}/ws`;
  await t.rejects(dial(t, app, path, { headers: { origin: 'http://evil.example' } }), /403/);
  const wire = await dial(t, app, path, { headers: { origin: `http://${hostOf(app)}` } });
  t.match(await ask(wire, { type: 'state' }), { type: 'state' });
});

t.test('problems are counted under their codes, operations under their environment', async t => {
  const app = await listening(t);
  const wire = await dialEnv(t, app, COUNTER);
  await ask(wire, { type: 'step', data: { action: [] } });
  await ask(wire, { type: 'step', data: { action: 'add' } });
  const { text } = await app.ask('GET', '/metrics');
  t.ok(text.includes('ragen_problems_total{code="invalid_action",status="422"} 1'));
  t.match(text, /ragen_operation_seconds_count\{env_id="test\/Counter-v0",operation="step"\} 1/);
});
