import t, { type Test } from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import { resolveConfig } from '../../environments/core/settings.ts';
import type { WebhookDefinition } from '../definitions/definition.ts';
import { localNetwork, type Received, testService } from './service.test-data.ts';
import { webhookEnvironment } from './webhook.ts';

const definition: Omit<WebhookDefinition, 'url'> = {
  kind: 'remote',
  protocol: 'webhook',
  title: 'Counting',
  instruction: 'Count to three.',
  action_space: { type: 'Discrete', names: ['Add', 'Rest'] },
  example_action: 'Add',
  reward_range: [0, 1],
  config_schema: { type: 'object', properties: { goal: { type: 'integer', default: 3 } } },
};

/** A service that counts, keeping its episodes or, where requests bring it, nothing. */
function counter() {
  const episodes = new Map<unknown, { count: number; goal: number }>();
  const shown = (state: { count: number }) => ({
    text: `Count ${state.count}.`,
    structured: { count: state.count },
  });
  const answer = ({ path, body }: Received): { status?: number; body: unknown } => {
    const { session_id: session, state, config, action } = body as { [key: string]: never };
    if (path === '/reset') {
      const begun = { count: 0, goal: (config as { goal: number }).goal };
      episodes.set(session, begun);
      return { body: { observation: shown(begun), valid_actions: ['Add', 'Rest'], state: begun } };
    }
    if (path === '/close') {
      episodes.delete(session);
      return { body: {} };
    }
    const before = state ?? episodes.get(session);
    if (!before) return { status: 404, body: { detail: 'unknown session' } };
    const { count, goal } = before as { count: number; goal: number };
    const next = { goal, count: count + (action === 'Add' ? 1 : 0) };
    episodes.set(session, next);
    return {
      body: {
        observation: shown(next),
        reward: action === 'Add' ? 1 : 0,
        terminated: next.count >= goal,
        info: { success: next.count >= goal },
        valid_actions: ['Add', 'Rest'],
        state: next,
      },
    };
  };
  return { episodes, answer };
}

async function playing(t: Test, more: Partial<WebhookDefinition> = {}) {
  const service = counter();
  const { url, received } = await testService(t, service.answer);
  const environment = webhookEnvironment('test/W-v0', { ...definition, url, ...more }, localNetwork(t));
  const begin = async (seed = 7) => {
    const rng = Random.fromSeed(seed);
    return { rng, state: await environment.reset(resolveConfig(environment), rng, {}) };
  };
  return { ...service, environment, received, begin };
}

t.test('keeps the contract with and without state', async t => {
  for (const capabilities of [{}, { snapshot: true }, { seed: false }, { valid_actions: true }]) {
    const { environment, episodes } = await playing(t, { capabilities });
    t.same((await checkEnvironment(environment, { episodes: 2, steps: 8 })).findings, []);
    if (!('snapshot' in capabilities)) t.equal(episodes.size, 0, 'every episode was closed');
  }
});

t.test('a service that keeps its episodes gets session id, seed, configuration and step numbers', async t => {
  const { environment, received, begin } = await playing(t);
  const { rng, state } = await begin();
  const result = await environment.step(state, 'add', rng);
  t.match(result, { reward: 1, terminated: false, info: { success: false, action_is_effective: true } });
  await environment.step(result.state, 1, rng);
  await environment.dispose?.(result.state);
  const session = received[0].body.session_id;
  t.match(received, [
    {
      path: '/reset',
      body: {
        session_id: /^r/,
        env_id: 'test/W-v0',
        seed: 7,
        config: { goal: 3, max_steps: 100 },
        options: {},
      },
    },
    { path: '/step', body: { session_id: session, step: 1, action: 'Add' } },
    { path: '/step', body: { session_id: session, step: 2, action: 'Rest' } },
    { path: '/close', body: { session_id: session } },
  ]);
  t.notOk(received.some(({ body }) => 'state' in body));
  t.same(rng.state, Random.fromSeed(7).state, 'nothing was drawn here');
});

t.test('a service that keeps nothing gets its state back, and a seed for every step', async t => {
  const { environment, received, begin } = await playing(t, { capabilities: { snapshot: true } });
  const { rng, state } = await begin();
  const twin = Random.fromState(rng.state);
  const copy = JSON.parse(JSON.stringify(state));
  t.same(await environment.step(copy, 'Add', twin), await environment.step(state, 'Add', rng));
  t.equal(environment.dispose, undefined);
  const seed = Random.fromSeed(7).uint32();
  for (const { body } of received.slice(1)) {
    t.match(body, { state: { count: 0, goal: 3 }, seed, step: 1, action: 'Add' });
    t.notOk('session_id' in body);
  }
});

t.test('an environment that declares no seeds gets none', async t => {
  const { environment, received, begin } = await playing(t, { capabilities: { seed: false } });
  await begin();
  t.equal(environment.spec.seedable, false);
  t.notOk('seed' in received[0].body);
});

t.test('an action outside the space does not reach the service', async t => {
  const { environment, received, begin } = await playing(t);
  const { rng, state } = await begin();
  for (const action of ['Jump', 7, null]) {
    t.match((await environment.step(state, action, rng)).info, { action_is_valid: false });
  }
  t.equal(received.length, 1);
});

t.test('answers of the wrong form are failures of the service', async t => {
  const answers: [JsonObject, RegExp][] = [
    [{ reward: 1 }, /the observation must be text or an object, got nothing/],
    [{ observation: 'x', reward: 'much' }, /reward must be a finite number/],
    [{ observation: 'x', valid_actions: 'all' }, /the valid actions must be a list/],
  ];
  for (const [answer, message] of answers) {
    const service = await testService(t, ({ path }) => ({
      body: path === '/reset' ? { observation: 'x' } : answer,
    }));
    const environment = webhookEnvironment('test/W-v0', { ...definition, url: service.url }, localNetwork(t));
    const rng = Random.fromSeed(1);
    const state = await environment.reset({}, rng, {});
    await t.rejects(async () => environment.step(state, 'Add', rng), { code: 'remote_failed', message });
  }
  const stateless = await testService(t, () => ({ body: { observation: 'x' } }));
  const environment = webhookEnvironment(
    'test/W-v0',
    { ...definition, url: stateless.url, capabilities: { snapshot: true } },
    localNetwork(t),
  );
  await t.rejects(async () => environment.reset({}, Random.fromSeed(1), {}), /every reply must have "state"/);
});
