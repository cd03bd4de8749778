import t, { type Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { silentApp } from '../../../test/app.test-data.ts';
import type { App } from '../../app.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import { resolveConfig } from '../../environments/core/settings.ts';
import { frozenLake } from '../../environments/frozenlake/frozenlake.ts';
import type { RagenDefinition } from '../definitions/definition.ts';
import { learnRagen, ragenEnvironment } from './ragen.ts';
import { localNetwork, testService } from './service.test-data.ts';

async function otherServer(t: Test): Promise<App & { url: string }> {
  const app = await silentApp(t);
  return { ...app, url: await app.server.listen({ host: '127.0.0.1', port: 0 }) };
}

async function proxied(t: Test, url: string, more: Partial<RagenDefinition> = {}): Promise<AnyEnvironment> {
  const definition: RagenDefinition = {
    kind: 'remote',
    protocol: 'ragen',
    env_id: 'FrozenLake-v0',
    url,
    ...more,
  };
  const network = localNetwork(t);
  return ragenEnvironment(
    'test/Far-v0',
    definition,
    await learnRagen('test/Far-v0', definition, network),
    network,
  );
}

t.test('plays what the other server plays, seed for seed', async t => {
  const other = await otherServer(t);
  const config = { size: 5, success_rate: 1 };
  const environment = await proxied(t, other.url, { config });
  t.same((await checkEnvironment(environment, { episodes: 2, steps: 8 })).findings, []);
  t.equal(other.sessions.size, 0, 'every session over there was closed');

  const rng = Random.fromSeed(11);
  let state = await environment.reset(resolveConfig(environment), rng, {});
  const here = frozenLake as unknown as AnyEnvironment;
  const twin = Random.fromSeed(11);
  let local = await here.reset(resolveConfig(here, config), twin, {});
  t.same(environment.spec.ends, { ...here.spec.ends, time_limit: 'Reached the step limit' });
  for (const action of ['Right', 2, 'up', 'Jump']) {
    t.equal(environment.observe(state, 'text'), here.observe(local, 'text'));
    const far = await environment.step(state, action, rng);
    const near = await here.step(local, action, twin);
    t.match(far, { reward: near.reward, terminated: near.terminated, info: near.info });
    state = far.state;
    local = near.state;
    if (near.terminated) break;
  }
  await environment.dispose?.(state);
});

t.test('the description is that of the other server, for the environment as configured', async t => {
  const other = await otherServer(t);
  const symbols = { hole: '@' };
  const environment = await proxied(t, other.url, {
    config: { symbols, max_steps: 9 },
    wrappers: [{ name: 'step_penalty', options: { penalty: 0.5 } }],
  });
  const { spec } = environment;
  t.equal(spec.id, 'test/Far-v0');
  t.equal(spec.maxEpisodeSteps, 9);
  t.same(spec.rewardRange, [-0.5, 0.5]);
  t.same(spec.tags, ['remote']);
  t.match(environment.describe({}).legend, [{ symbol: 'P' }]);
  t.ok(environment.describe({}).legend?.some(({ symbol }) => symbol === '@'));
  t.match(spec.actionSpace, { type: 'Discrete', n: 4, start: 1, names: ['Left', 'Down', 'Right', 'Up'] });
  const grid = environment.observe(
    await environment.reset({}, Random.fromSeed(1), { layout: ['P@', '_G'] }),
    'text',
  );
  t.equal(grid, 'P@\n_G');
});

t.test('free text goes through', async t => {
  const other = await otherServer(t);
  const environment = await proxied(t, other.url, { env_id: 'Countdown-v0' });
  const state = await environment.reset({}, Random.fromSeed(1), { nums: [1, 2, 3], target: 6 });
  const result = await environment.step(state, '1 + 2 + 3', Random.fromSeed(1));
  t.match(result, { reward: 1, terminated: true, info: { success: true } });
});

t.test('the other server reports what it cannot register', async t => {
  const other = await otherServer(t);
  await t.rejects(
    proxied(t, other.url, { env_id: 'Nothing-v0' }),
    /answered .* with 404: there is no environment "Nothing-v0"/,
  );
  await t.rejects(proxied(t, other.url, { config: { size: 'x' } }), /with 422/);
});

t.test(
  'a document with impossible numbers or a malformed legend is refused, and the field is named',
  async t => {
    const described: JsonObject = {
      title: 'Far',
      instruction: 'Go.',
      max_episode_steps: 10,
      example_action: 0,
      action_space: { gymnasium: { type: 'Discrete', n: 3, start: 0 } },
      legend: [{ symbol: 'P', meaning: 'the player' }],
    };
    const space = (gymnasium: JsonObject) => ({ gymnasium });
    let document = described;
    const service = await testService(t, async () => ({ body: document }));
    t.match((await proxied(t, service.url)).spec.actionSpace, { type: 'Discrete', n: 3 });
    const faults: [more: JsonObject, message: RegExp][] = [
      [
        { action_space: space({ type: 'Discrete', n: 2 ** 53 - 1 }) },
        /action_space.gymnasium.n must .* 1 to 10000/,
      ],
      [{ action_space: space({ type: 'Discrete', n: 0 }) }, /action_space.gymnasium.n must/],
      [
        { action_space: space({ type: 'Discrete', n: 2, start: 1e300 }) },
        /action_space.gymnasium.start must/,
      ],
      [{ action_space: space({ type: 'Discrete', n: 2, start: 0.5 }) }, /action_space.gymnasium.start must/],
      [{ action_space: space({ type: 'Text', max_length: -1 }) }, /action_space.gymnasium.max_length must/],
      [{ observation_space: space({ max_length: 'long' }) }, /observation_space.gymnasium.max_length must/],
      [{ max_episode_steps: 1e9 }, /max_episode_steps must be a whole number from 1 to 100000/],
      [{ title: 'x'.repeat(201) }, /title must have at most 200 characters, got 201/],
      [{ legend: 'P: the player' }, /legend must be a list/],
      [{ legend: [null] }, /legend\/0 must be an object with a symbol and a meaning/],
      [{ legend: [...(described.legend as []), { symbol: 1 }] }, /legend\/1 must be/],
    ];
    for (const [more, message] of faults) {
      document = { ...described, ...more };
      await t.rejects(proxied(t, service.url), { code: 'remote_failed', message }, JSON.stringify(more));
    }
  },
);

t.test('a step is repeated under its key when the connection breaks, and applied once', async t => {
  const other = await otherServer(t);
  let broken = 0;
  const line = await testService(t, async ({ method, path, headers, body }) => {
    const reply = await other.server.inject({
      method: method as 'POST',
      url: path,
      headers: { 'content-type': 'application/json', 'idempotency-key': String(headers['idempotency-key']) },
      ...(method === 'POST' && { payload: JSON.stringify(body) }),
    });
    if (path.endsWith('/step') && broken++ < 1) return {};
    return { status: reply.statusCode, body: reply.body };
  });
  const environment = await proxied(t, line.url, { env_id: 'FrozenLake-v0' });
  const rng = Random.fromSeed(3);
  const state = await environment.reset({}, rng, {});
  const first = await environment.step(state, 'Right', rng);
  t.match(first.state, { step: 1 });
  const steps = line.received.filter(({ path }) => path.endsWith('/step'));
  t.equal(steps.length, 2);
  t.equal(new Set(steps.map(({ headers }) => headers['idempotency-key'])).size, 1);
  t.match((await environment.step(first.state, 'Right', rng)).state, { step: 2 });
});

t.test('a session that the other server has lost ends the episode', async t => {
  const other = await otherServer(t);
  const environment = await proxied(t, other.url);
  const state = await environment.reset({}, Random.fromSeed(1), {});
  await environment.dispose?.(state);
  await t.rejects(async () => environment.step(state, 'Up', Random.fromSeed(1)), {
    code: 'remote_failed',
    message: /answered a step with 410/,
  });
});

/** An environment of a service that is not asked for its description. */
function proxiedAs(t: Test, url: string): AnyEnvironment {
  const definition: RagenDefinition = { kind: 'remote', protocol: 'ragen', env_id: 'Far-v0', url };
  const document = { title: 'Far', instruction: 'Continue.', max_episode_steps: 9, action_space: {} };
  return ragenEnvironment('test/Far-v0', definition, { document }, localNetwork(t));
}

t.test('a step that is answered by something else than an object is refused by name', async t => {
  const service = await testService(t, ({ path }) => ({
    body: path === '/v1/sessions' ? { session_id: 's', observation: 'on' } : 'null',
  }));
  const environment = proxiedAs(t, service.url);
  const rng = Random.fromSeed(1);
  const state = await environment.reset({ max_steps: 9 }, rng, {});
  await t.rejects(async () => environment.step(state, 'x', rng), {
    code: 'remote_failed',
    message: 'the service of test/Far-v0 must answer a step with a JSON object',
  });
});

t.test('the pause that the other server asks for stays within an hour', async t => {
  let asked: Json = 0;
  const service = await testService(t, ({ path }) =>
    path === '/v1/sessions'
      ? { body: { session_id: 's', observation: 'on' } }
      : { status: 429, body: { retryable: true, retry_after_s: asked } },
  );
  const environment = proxiedAs(t, service.url);
  const rng = Random.fromSeed(1);
  const state = await environment.reset({ max_steps: 9 }, rng, {});
  for (const [seconds, expected] of [
    [30, 30],
    [1e300, 3600],
    [-5, 1],
    ['soon', 1],
  ] as const) {
    asked = seconds;
    await t.rejects(async () => environment.step(state, 'x', rng), {
      code: 'remote_unavailable',
      retryAfterSeconds: expected,
    });
  }
});

t.test('ends are named by the other server, its step limit included', async t => {
  const other = await otherServer(t);
  const play = async (config: JsonObject, layout: string[], actions: readonly string[]) => {
    const environment = await proxied(t, other.url, { config });
    const rng = Random.fromSeed(1);
    let state = await environment.reset(resolveConfig(environment), rng, { layout });
    const ends: unknown[] = [];
    for (const action of actions) {
      const step = await environment.step(state, action, rng);
      state = step.state;
      ends.push(step.info.ended_by);
    }
    await environment.dispose?.(state);
    return ends;
  };
  const config = { success_rate: 1, max_steps: 2 };
  t.same(await play(config, ['SFG', 'FHF'], ['Right', 'Down']), [undefined, 'hole']);
  t.same(await play(config, ['SFG', 'FHF'], ['Up', 'Up']), [undefined, 'time_limit']);
});
