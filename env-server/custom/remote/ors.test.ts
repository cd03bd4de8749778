import { PNG } from 'pngjs';
import t, { type Test } from 'tap';
import type { Json } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { type TestApp, testApp } from '../../../test/app.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import type { OrsDefinition } from '../definitions/definition.ts';
import { learnOrs, orsEnvironment } from './ors.ts';
import { type Answer, localNetwork, type Received, testService } from './service.test-data.ts';

const PIXEL = PNG.sync.write(new PNG({ width: 1, height: 1 })).toString('base64');
const sse = (...events: [string, string][]): Answer => ({
  headers: { 'content-type': 'text/event-stream' },
  body: `: ping\r\n\r\n${events.map(([name, data]) => `event: ${name}\r\ndata: ${data}\r\n\r\n`).join('')}`,
});
const text = (said: string) => ({ type: 'text', text: said, detail: null });

/** Guessing a number, as `ors.Server` of the Python SDK answers for it (src/ors/server.py); `odd` replaces replies. */
async function guessing(t: Test, odd: (request: Received) => Answer | undefined = () => undefined) {
  const sessions = new Map<unknown, number>();
  let made = 0;
  const schema = {
    type: 'object',
    properties: { guess: { type: 'string', pattern: '(a+)+$' } },
    required: ['guess'],
  };
  const tools = [
    { name: 'guess', description: 'Guess.', input_schema: schema },
    { name: 'reset', description: 'Shadows a tool of this server.', input_schema: null },
  ];
  const routes: { [route: string]: (request: Received) => Answer } = {
    'GET /Guess/tools': () => ({ body: { tools } }),
    'GET /Guess/splits': () => ({
      body: [
        { name: 'train', type: 'train' },
        { name: 'empty', type: 'test' },
      ],
    }),
    'POST /Guess/num_tasks': ({ body }) => ({ body: { num_tasks: body.split === 'train' ? 5 : 0 } }),
    'POST /create_session': () => sse(['task_id', `sid-${++made}`], ['end', '']),
    'POST /create': ({ headers, body }) => {
      sessions.set(headers['x-session-id'], body.index as unknown as number);
      return { body: { sid: headers['x-session-id'] } };
    },
    'GET /Guess/prompt': () => ({
      body: [text('Guess the number.'), { type: 'image', data: PIXEL, mimeType: 'image/png', detail: null }],
    }),
    'POST /Guess/call': ({ headers, body }) => {
      const { guess } = (body.input ?? {}) as { guess?: string };
      if (body.name !== 'guess' || guess === undefined) {
        return sse(
          ['task_id', '1'],
          ['end', JSON.stringify({ ok: false, error: 'Tool input validation error' })],
        );
      }
      const right = Number(guess) === sessions.get(headers['x-session-id']);
      const output = {
        blocks: [text(right ? 'Right!' : 'Wrong.')],
        reward: right ? 1 : null,
        finished: right,
        metadata: { tries: 1 },
      };
      const json = JSON.stringify({ ok: true, output });
      return sse(['task_id', '1'], ['chunk', json.slice(0, 20)], ['end', json.slice(20)]);
    },
    'POST /delete': ({ headers }) => {
      sessions.delete(headers['x-session-id']);
      return { body: {} };
    },
    'POST /delete_session': () => ({ body: {} }),
  };
  const service = await testService(t, request => {
    const route = routes[`${request.method} ${request.path}`];
    return odd(request) ?? route?.(request) ?? { status: 404, body: { detail: 'Not Found' } };
  });
  return { ...service, sessions };
}

async function made(t: Test, url: string, more: Partial<OrsDefinition> = {}) {
  const definition: OrsDefinition = {
    kind: 'remote',
    protocol: 'ors',
    url,
    env_name: 'Guess',
    action_tool: 'guess',
    action_field: 'guess',
    example_action: '3',
    timeout_ms: 60_000,
    ...more,
  };
  const network = localNetwork(t);
  const facts = await learnOrs('test/Guess-v0', definition, network);
  return orsEnvironment('test/Guess-v0', definition, facts, network);
}

const config = { max_steps: 9, split: 'train' };

t.test('keeps the contract with text actions and with calls', async t => {
  const { url, sessions } = await guessing(t);
  for (const more of [
    {},
    {
      action_tool: undefined,
      action_field: undefined,
      example_action: { name: 'guess', input: { guess: '3' } },
    },
  ]) {
    const environment = await made(t, url, more);
    t.same((await checkEnvironment(environment, { episodes: 2, steps: 4 })).findings, []);
  }
  t.equal(sessions.size, 0, 'every episode was deleted');
});

t.test('listed actions are those of the random player, and lie in the action space', async t => {
  const { url } = await guessing(t);
  const environment = await made(t, url, { actions: ['1', '2'] });
  t.match(environment.describe(config), { exampleActions: ['1', '2'] });
  const plan = environment.references!.random.plan({}, 50, Random.fromSeed(1));
  t.same(new Set(await plan), new Set(['1', '2']));
  await t.rejects(made(t, url, { actions: [{ name: 'guess' }] }), {
    message: /\/definition\/actions\/0: is not an action/,
  });
});

t.test('a seed chooses the task, blocks become text, pictures pass through', async t => {
  const { url, received } = await guessing(t);
  const environment = await made(t, url);
  t.match(environment.describe(config), { instruction: /- guess\(guess\): Guess\./, actionFormat: 'a text' });
  const rng = Random.fromSeed(13);
  const start = await environment.reset(config, rng, {});
  t.equal(environment.observe(start, 'text'), `Guess the number.\ndata:image/png;base64,${PIXEL}`);
  t.match(received.find(({ path }) => path === '/create')?.body, {
    env_name: 'Guess',
    split: 'train',
    index: 13 % 5,
  });
  const wrong = await environment.step(start, '0', rng);
  t.match(wrong, { reward: 0, terminated: false, info: { success: false, metadata: { tries: 1 } } });
  t.equal(environment.observe(wrong.state, 'text'), 'Wrong.');
  t.match(await environment.step(wrong.state, '3', rng), {
    reward: 1,
    terminated: true,
    info: { success: true },
  });
  await environment.reset(config, rng, { index: 4 });
  t.match(received.findLast(({ path }) => path === '/create')?.body, { index: 4 });
});

t.test('a rejected call is an observation, not a fault', async t => {
  const { url } = await guessing(t);
  const environment = await made(t, url, {
    action_tool: undefined,
    action_field: undefined,
    example_action: { name: 'guess' },
  });
  const rng = Random.fromSeed(1);
  const state = await environment.reset(config, rng, {});
  const { state: next, info, terminated } = await environment.step(state, { name: 'guess' }, rng);
  t.match(
    { info, terminated },
    { info: { action_is_valid: false, message: /validation/ }, terminated: false },
  );
  t.match(environment.observe(next, 'text'), /validation/);
  t.match(
    await environment.step(state, 'guess', rng),
    { info: { action_is_valid: false } },
    'no call at all',
  );
  const [guess] = environment.tools!;
  t.equal(
    JSON.stringify(guess.parameters.properties.guess).includes('pattern'),
    false,
    'patterns are not run',
  );
});

t.test('definitions that do not fit the service are refused', async t => {
  const { url } = await guessing(t);
  await t.rejects(made(t, url, { split: 'none' }), /no split none; it has train, empty/);
  await t.rejects(made(t, url, { split: 'empty' }), /has no tasks/);
  await t.rejects(made(t, url, { action_tool: 'fly' }), /no such tool; it has guess, reset/);
  await t.rejects(made(t, url, { action_tool: undefined }), /go together/);
  await t.rejects(made(t, url, { env_name: 'Nothing' }), /404/);
  await t.rejects(made(t, url, { example_action: 5 }), /must be a text/);
  for (const [splits, message] of [
    [Array.from({ length: 65 }, (_, i) => `part ${i}`), /list of 1 to 64 splits/],
    [[{ name: 'x'.repeat(129) }], /splits\/0 must have a name of 1 to 128/],
    [[7], /splits\/0 must have a name/],
  ] as const) {
    const odd = await guessing(t, ({ path }) =>
      path === '/Guess/splits' ? { body: splits as unknown as Json } : undefined,
    );
    await t.rejects(made(t, odd.url), message);
  }
});

t.test('invalid answers are remote faults', async t => {
  let odd: Answer | undefined;
  let at = '';
  const { url, sessions } = await guessing(t, ({ path }) => (path === at ? odd : undefined));
  const environment = await made(t, url, { timeout_ms: 2000 });
  const rng = Random.fromSeed(1);
  const state = await environment.reset(config, rng, {});
  const output = (blocks: Json, more = {}) =>
    sse(['end', JSON.stringify({ ok: true, output: { blocks, ...more } })]);
  const deep = '['.repeat(100) + ']'.repeat(100);
  for (const [path, answer, message] of [
    ['/Guess/call', { body: '{}' }, /has no end/],
    ['/Guess/call', sse(['error', 'out of order']), /out of order/],
    ['/Guess/call', sse(['end', 'nothing']), /not JSON/],
    ['/Guess/call', sse(['end', deep]), /cannot be taken/],
    ['/Guess/call', output('text'), /blocks must be a list/],
    ['/Guess/call', output([{ type: 'image', data: '<svg>', mimeType: 'image/svg+xml' }]), /base64/],
    ['/Guess/call', output([{ type: 'image', data: 'AAAA', mimeType: 'text/html' }]), /mimeType/],
    ['/Guess/call', output([], { reward: 'much' }), /reward/],
    ['/Guess/call', output([], { finished: 1 }), /finished/],
    ['/Guess/call', sse(['end', 'x'.repeat(2_000_000)]), /./],
    ['/Guess/call', { status: 302, headers: { location: 'http://169.254.169.254/' }, body: '' }, /redirect/],
    ['/create_session', sse(['end', '']), /must give the id/],
    ['/create', { status: 429, body: { detail: 'full' } }, /is full/],
  ] as const) {
    at = path;
    odd = answer;
    const done =
      path === '/Guess/call' ? environment.step(state, '1', rng) : environment.reset(config, rng, {});
    await t.rejects(Promise.resolve(done), message, `${path} ${message}`);
    // One success keeps the breaker closed.
    at = '';
    await environment.step(state, '1', rng);
  }
  t.equal(sessions.size, 1, 'no episode was left behind');
});

/** A server of ours as the service, and another one that plays its environment. */
async function twoServers(
  t: Test,
): Promise<{ far: TestApp; near: TestApp; register: (more: object) => Promise<string> }> {
  const far = await listening(t);
  const near = await testApp(t, { remoteHosts: '127.0.0.1', remoteNetworks: '127.0.0.1/32' });
  let made = 0;
  const register = async (more: object) => {
    const id = `demo/Far${++made}-v0`;
    const definition = { kind: 'remote', protocol: 'ors', url: `http://${hostOf(far)}`, ...more };
    const { status, text } = await near.ask('POST', '/v1/envs', { env_id: id, definition } as never);
    t.equal(status, 201, text);
    return id;
  };
  return { far, near, register };
}

t.test('one ragen server plays the environments of another', async t => {
  const { far, near, register } = await twoServers(t);
  const counter = await register({
    env_name: 'test/Counter-v0',
    action_tool: 'step',
    action_field: 'action',
    example_action: 'add',
  });
  const { body } = await near.ask('POST', '/v1/sessions', { env_id: counter, seed: 7 });
  t.match(body.observation, /^Count to 3\.\n0\/3/);
  const step = await near.ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'add' });
  t.match(step.body, {
    observation: /^1\/3 \d+\nReward: 1\.$/,
    reward: 1,
    terminated: false,
    info: { metadata: { step: 1 } },
  });

  const lake = await register({
    env_name: 'FrozenLake-v0',
    example_action: { name: 'step', input: { action: 'Up' } },
  });
  const tools = await near.ask('POST', `/mcp/${lake}`, { jsonrpc: '2.0', id: 1, method: 'tools/list' });
  t.match(
    (tools.body.result.tools as unknown as { name: string }[]).map(({ name }) => name),
    ['reset', 'step', 'observe', 'valid_actions', 'close_session'],
    'a tool of the service never takes the place of one of the server',
  );
  const session = await near.ask('POST', '/v1/sessions', {
    env_id: lake,
    seed: 3,
    config: { split: 'test' },
  });
  t.equal(session.status, 201);
  const { body: there } = await far.ask('GET', '/v1/sessions');
  t.match((there.sessions as unknown as object[]).at(-1), { env_id: 'FrozenLake-v0', seed: 2_000_003 });
  await near.ask('DELETE', `/v1/sessions/${session.body.session_id}`);
});
