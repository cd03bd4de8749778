import t, { type Test } from 'tap';
import { WebSocketServer } from 'ws';
import { Random } from '../../../shared/random.ts';
import { testApp } from '../../../test/app.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import type { OpenEnvDefinition } from '../definitions/definition.ts';
import { Endpoint } from './endpoint.ts';
import { NetworkGuard, RemoteNetwork } from './network.ts';
import { learnOpenEnv, openEnvEnvironment } from './openenv.ts';
import { WebSocketTransport } from './openenv-transport.ts';
import { type Answer, localNetwork, type Received, testService } from './service.test-data.ts';

interface Episode {
  said: number;
}

type Message = { readonly type: string; readonly data?: { readonly [key: string]: unknown } };

const WORDS_TO_WIN = 3;

function shown({ said }: Episode, message: unknown) {
  const done = said >= WORDS_TO_WIN;
  return { observation: { echoed: message, length: said }, reward: done ? 1 : null, done };
}

/** An echo service in OpenEnv's protocol over both of its transports; `odd` replaces replies on the WebSocket. */
async function echoService(t: Test, odd: (message: Message) => string | undefined = () => undefined) {
  const overHttp = new Map<unknown, Episode>();
  const http = ({ path, headers, body }: Received): Answer => {
    const session = headers['x-session-id'];
    if (path === '/metadata') return { body: { name: 'echo', description: 'Says what you say.' } };
    if (path === '/reset') {
      overHttp.set(session, { said: 0 });
      return { body: shown({ said: 0 }, 'hello') };
    }
    if (path !== '/step') return { status: 404, body: { detail: 'no such route' } };
    const { message } = body.action as { message?: unknown };
    if (typeof message !== 'string') return { status: 422, body: { detail: 'message is missing' } };
    const episode = overHttp.get(session);
    if (!episode) return { status: 404, body: { detail: 'no such session' } };
    episode.said++;
    return { body: shown(episode, message) };
  };
  const service = await testService(t, http);
  const sockets = new WebSocketServer({ server: service.server, path: '/ws' });
  t.teardown(() => {
    for (const socket of sockets.clients) socket.terminate();
    sockets.close();
  });
  const received: Message[] = [];
  sockets.on('connection', socket => {
    const episode: Episode = { said: 0 };
    socket.on('message', data => {
      const message = JSON.parse(String(data)) as Message;
      received.push(message);
      const replaced = odd(message);
      if (replaced !== undefined) {
        if (replaced !== '') socket.send(replaced);
        return;
      }
      if (message.type === 'close') socket.close();
      else if (message.type === 'reset') {
        socket.send(JSON.stringify({ type: 'observation', data: shown(episode, 'hello') }));
      } else if (typeof message.data?.message !== 'string') {
        const data = { message: 'message is missing', code: 'VALIDATION_ERROR' };
        socket.send(JSON.stringify({ type: 'error', data }));
      } else {
        episode.said++;
        socket.send(JSON.stringify({ type: 'observation', data: shown(episode, message.data.message) }));
      }
    });
  });
  return { ...service, frames: received, sockets };
}

async function made(t: Test, url: string, more: Partial<OpenEnvDefinition> = {}) {
  const definition: OpenEnvDefinition = {
    kind: 'remote',
    protocol: 'openenv',
    url,
    action_field: 'message',
    observation_field: 'echoed',
    example_action: 'hi',
    timeout_ms: 60_000,
    ...more,
  };
  const network = localNetwork(t);
  const facts = await learnOpenEnv('test/Echo-v0', definition, network);
  return openEnvEnvironment('test/Echo-v0', definition, facts, network);
}

/** Until the service has seen all its connections close. */
async function closed(sockets: WebSocketServer): Promise<void> {
  await until(() => sockets.clients.size === 0);
}

t.test('keeps the contract over both transports', async t => {
  const service = await echoService(t);
  for (const transport of ['websocket', 'http'] as const) {
    const environment = await made(t, service.url, { transport, seed: true });
    t.same((await checkEnvironment(environment, { episodes: 2, steps: 6 })).findings, []);
  }
  await closed(service.sockets);
  const sent = (name: string) => service.frames.filter(({ type }) => type === name).length;
  t.ok(sent('reset') >= 4, 'two episodes, each played twice');
  t.equal(sent('close'), sent('reset'), 'every episode was closed');
});

t.test('speaks the protocol message by message', async t => {
  const service = await echoService(t);
  const environment = await made(t, service.url, { seed: true });
  t.match(environment.spec, { title: 'echo', description: 'Says what you say.', seedable: undefined });
  t.equal(environment.describe({}).instruction, 'Says what you say.');
  const rng = Random.fromSeed(5);
  let state = await environment.reset({ max_steps: 9 }, rng, {});
  t.equal(environment.observe(state, 'text'), 'hello');
  t.same(environment.observe(state, 'structured'), { echoed: 'hello', length: 0 });
  for (let word = 1; word <= 3; word++) {
    const result = await environment.step(state, `word ${word}`, rng);
    t.match(result, {
      reward: word === 3 ? 1 : 0,
      terminated: word === 3,
      info: { success: word === 3, action_is_valid: true },
    });
    state = result.state;
  }
  t.equal(environment.observe(state, 'text'), 'word 3');
  await environment.dispose?.(state);
  await closed(service.sockets);
  t.match(service.frames, [
    { type: 'reset', data: { seed: 5, episode_id: /^r/ } },
    { type: 'step', data: { message: 'word 1' } },
    { type: 'step', data: { message: 'word 2' } },
    { type: 'step', data: { message: 'word 3' } },
    { type: 'close' },
  ]);
});

t.test('listed actions are those of the random player, and lie in the action space', async t => {
  const { url } = await echoService(t);
  const environment = await made(t, url, { vocabulary: ['hi', 'ho'], actions: ['hi', 'ho'] });
  t.match(environment.describe({}), { vocabulary: ['hi', 'ho'], exampleActions: ['hi', 'ho'] });
  const plan = environment.references!.random.plan({}, 50, Random.fromSeed(1));
  t.same(new Set(await plan), new Set(['hi', 'ho']));
  await t.rejects(made(t, url, { actions: ['hi', { message: 'ho' }] }), {
    message: /\/definition\/actions\/1: is not an action/,
  });
});

t.test('without action_field and observation_field whole objects go both ways', async t => {
  const service = await echoService(t);
  const fields = { action_field: undefined, observation_field: undefined, example_action: { message: 'x' } };
  for (const transport of ['websocket', 'http'] as const) {
    const environment = await made(t, service.url, { ...fields, transport });
    const rng = Random.fromSeed(1);
    const state = await environment.reset({ max_steps: 9 }, rng, {});
    const result = await environment.step(state, { message: 'yes' }, rng);
    t.equal(environment.observe(result.state, 'text'), '{"echoed":"yes","length":1}');
    const wrong = await environment.step(result.state, { other: 1 }, rng);
    t.match(wrong.info, { action_is_valid: false, message: /message is missing/ });
    t.equal(wrong.state, result.state, 'an action that the service refuses changes nothing');
    t.match((await environment.step(result.state, 'text', rng)).info, { action_is_valid: false });
    await environment.dispose?.(state);
  }
  await t.rejects(made(t, service.url, { example_action: { x: 1 } }), /must be a string for action_field/);
  await t.rejects(made(t, service.url, { ...fields, example_action: 'x' }), /must be an object/);
});

t.test('a seed is rejected unless the definition says that the service honors it', async t => {
  const service = await echoService(t);
  const environment = await made(t, service.url);
  t.equal(environment.spec.seedable, false);
  await environment.reset({ max_steps: 9 }, Random.fromSeed(1), {});
  t.notOk('seed' in (service.frames[0].data ?? {}));
});

t.test('a late reply is never taken for the next one', async t => {
  let late = true;
  const service = await echoService(t, ({ type }) => (type === 'step' && late ? '' : undefined));
  const environment = await made(t, service.url, { timeout_ms: 3000 });
  const rng = Random.fromSeed(1);
  const state = await environment.reset({ max_steps: 9 }, rng, {});
  await t.rejects(async () => environment.step(state, 'slow', rng), {
    code: 'remote_failed',
    message: /did not answer within 3000 ms/,
  });
  late = false;
  await t.rejects(
    async () => environment.step(state, 'next', rng),
    /has closed the connection of this episode/,
  );
  await closed(service.sockets);
});

t.test('invalid replies end the episode with a reason', async t => {
  const cases: [reply: string, code: string, message: RegExp][] = [
    ['nonsense', 'remote_failed', /sent something that is not a reply/],
    ['{"type":"state","data":{}}', 'remote_failed', /its type is "state"/],
    ['{"type":"observation","data":{"observation":[]}}', 'remote_failed', /observation must be an object/],
    ['{"type":"observation","data":{"observation":{},"done":1}}', 'remote_failed', /done must be a boolean/],
    [
      '{"type":"error","data":{"code":"EXECUTION_ERROR","message":"oops"}}',
      'remote_failed',
      /EXECUTION_ERROR: oops/,
    ],
    ['{"type":"error","data":{"code":{"toString":1}}}', 'remote_failed', /{"toString":1}: nothing/],
    [
      '{"type":"error","data":{"code":"CAPACITY_REACHED","message":"64 of 64"}}',
      'remote_unavailable',
      /is full/,
    ],
    [
      '{"type":"observation","data":{"observation":{"other":1}}}',
      'remote_failed',
      /no field "echoed"; it has other/,
    ],
  ];
  for (const [reply, code, message] of cases) {
    const service = await echoService(t, ({ type }) => (type === 'reset' ? reply : undefined));
    const environment = await made(t, service.url);
    await t.rejects(async () => environment.reset({ max_steps: 9 }, Random.fromSeed(1), {}), {
      code,
      message,
    });
    await closed(service.sockets);
  }
});

t.test('a service that does not answer is a retryable error', async t => {
  const service = await echoService(t);
  const environment = await made(t, service.url);
  service.server.closeAllConnections();
  await new Promise(resolve => service.server.close(resolve));
  await t.rejects(async () => environment.reset({ max_steps: 9 }, Random.fromSeed(1), {}), {
    code: 'remote_unavailable',
  });
});

t.test('the guard checks WebSocket connections, too', async t => {
  const service = await echoService(t);
  const outside = localNetwork(t, '10.0.0.0/8');
  const definition = {
    kind: 'remote',
    protocol: 'openenv',
    url: service.url,
    title: 'x',
    instruction: 'x',
    example_action: {},
  } as const;
  await t.rejects(learnOpenEnv('test/E-v0', definition, outside), {
    code: 'invalid_request',
    message: /loopback/,
  });
  const guarded = openEnvEnvironment(
    'test/E-v0',
    definition,
    { name: 'x', description: 'x', tools: null },
    outside,
  );
  await t.rejects(async () => guarded.reset({ max_steps: 9 }, Random.fromSeed(1), {}), /may not be reached/);
});

t.test('episodes that hold their WebSockets leave some to other owners', async t => {
  const service = await echoService(t);
  const guard = new NetworkGuard({ remoteHosts: '*', remoteNetworks: '127.0.0.1' });
  const network = new RemoteNetwork(guard, undefined, undefined, undefined, 4);
  t.teardown(() => network.close());
  const [greedy, other] = ['greedy', 'other'].map(
    owner => new WebSocketTransport(new Endpoint('test/E-v0', { url: service.url }, { network, owner })),
  );
  for (const session of ['a', 'b', 'c']) await greedy.reset(session, {});
  await t.rejects(greedy.reset('d', {}), {
    code: 'remote_unavailable',
    message: /no place for another WebSocket/,
  });
  await other.reset('e', {});
  await greedy.close('a');
  await until(() => greedy.reset('d', {}).then(Boolean, () => false));
  await Promise.all(['b', 'c', 'd'].map(session => greedy.close(session)));
  await other.close('e');
  await closed(service.sockets);
});

t.test('the MCP tools of a service are actions, over both transports', async t => {
  const far = await listening(t);
  const near = await testApp(t, { remoteHosts: '127.0.0.1', remoteNetworks: '127.0.0.1/32' });
  for (const transport of ['websocket', 'http']) {
    const definition = {
      kind: 'remote',
      protocol: 'openenv',
      url: `http://${hostOf(far)}/compat/openenv/FrozenLake-v0`,
      transport,
      tools: true,
      seed: true,
      observation_field: 'text',
      example_action: { name: 'act', input: { action: 'Right' } },
    };
    const id = `demo/Tools${transport}-v0`;
    const registered = await near.ask('POST', '/v1/envs', { env_id: id, definition });
    t.equal(registered.status, 201, registered.text);
    const { body } = await near.ask('POST', '/v1/sessions', { env_id: id, seed: 7 });
    const path = `/v1/sessions/${body.session_id}/step`;
    const step = await near.ask('POST', path, { action: { name: 'act', input: { action: 'Right' } } });
    t.match(step.body, { observation: /^[_POG]{4}\n/, reward: 0, info: { action_is_valid: true } });
    const wrong = await near.ask('POST', path, { action: { name: 'act', input: { move: 1 } } });
    t.match(wrong.body, { info: { action_is_valid: false, message: /action: Field required/ } });
    t.match((await near.ask('POST', path, { action: 'Right' })).body, { code: 'invalid_action' });
    const call = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'act', arguments: { action: 'Up' } },
    };
    const played = await near.ask('POST', `/mcp/${id}?session_id=${body.session_id}`, call);
    t.match(
      played.body.result,
      { isError: false, structuredContent: { step: 3 } },
      'a named tool of MCP here, too',
    );
    await near.ask('DELETE', `/v1/sessions/${body.session_id}`);
  }
});

/** A service that makes a new environment for every HTTP request, as OpenEnv's own server does. */
async function statelessService(t: Test, withState: boolean) {
  return testService(t, ({ path, body }) => {
    if (path === '/metadata') return { body: { name: 'echo', description: 'Says what you say.' } };
    if (path === '/reset') return { body: { observation: { echoed: 'hello' }, reward: null, done: false } };
    if (path === '/step') {
      const { message } = body.action as { message?: unknown };
      return { body: { observation: { echoed: message }, reward: 0, done: false } };
    }
    if (path === '/state' && withState) return { body: { episode_id: 'new', step_count: 0 } };
    return { status: 404, body: {} };
  });
}

t.test('a service that keeps no state over HTTP is refused, naming its WebSocket', async t => {
  for (const [withState, seen] of [
    [true, 'after 2 steps it has counted 0'],
    [false, 'a step gets the same reply in a session that was never reset'],
  ] as const) {
    const service = await statelessService(t, withState);
    await t.rejects(made(t, service.url, { transport: 'http' }), {
      code: 'invalid_request',
      violations: [
        {
          pointer: '/definition/transport',
          detail: `is "http", but the service keeps no state between requests: ${seen}. Leave "transport" out: over the WebSocket ${service.url.replace('http', 'ws')}/ws each episode has its own`,
        },
      ],
    });
  }
});
