import t, { type Test } from 'tap';
import { Random } from '../../../shared/random.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';
import type { Settings } from '../../config/settings.ts';
import type { OpenEnvDefinition } from '../../custom/definitions/definition.ts';
import { learnOpenEnv, openEnvEnvironment } from '../../custom/remote/openenv.ts';
import { localNetwork } from '../../custom/remote/service.test-data.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';

/** The client of remote environments plays an environment of this server through this transport. */
async function remote(t: Test, transport: 'http' | 'websocket', settings: Partial<Settings> = {}) {
  const app = await listening(t, settings);
  const definition: OpenEnvDefinition = {
    kind: 'remote',
    protocol: 'openenv',
    url: `http://${hostOf(app)}/compat/openenv/test%2FCounter-v0`,
    transport,
    action_field: 'action',
    observation_field: 'text',
    example_action: 'add',
    seed: true,
  };
  const network = localNetwork(t);
  const facts = await learnOpenEnv('me/Far-v0', definition, network);
  return { app, facts, environment: openEnvEnvironment('me/Far-v0', definition, facts, network) };
}

for (const transport of ['http', 'websocket'] as const) {
  t.test(`over ${transport}: episodes are played to their end and keep the contract`, async t => {
    const { app, facts, environment } = await remote(t, transport);
    t.same(facts, { name: 'test/Counter-v0', description: 'Count to 3.', tools: null });
    t.same((await checkEnvironment(environment, { episodes: 2, steps: 6 })).findings, []);
    const rng = Random.fromSeed(4);
    let state = await environment.reset({ max_steps: 9 }, rng, {});
    t.match(environment.observe(state, 'text'), /^0\/3/);
    const refused = await environment.step(state, 'x'.repeat(100_001), rng);
    t.match(refused.info, { action_is_valid: false });
    for (let count = 1; count <= 3; count++) {
      const result = await environment.step(state, 'add', rng);
      state = result.state;
      t.match(result, { reward: 1, terminated: count === 3, info: { success: count === 3 } });
    }
    t.match(environment.observe(state, 'text'), /^3\/3/);
    await environment.dispose?.(state);
    if (transport === 'websocket') {
      while (app.sessions.size > 0) await new Promise(resolve => setImmediate(resolve));
    }
  });

  t.test(`over ${transport}: a refused action changes nothing and the reply says why`, async t => {
    const app = await listening(t);
    const definition: OpenEnvDefinition = {
      kind: 'remote',
      protocol: 'openenv',
      url: `http://${hostOf(app)}/compat/openenv/test%2FCounter-v0`,
      transport,
      example_action: { action: 'add' },
    };
    const network = localNetwork(t);
    const facts = await learnOpenEnv('me/Far-v0', definition, network);
    const environment = openEnvEnvironment('me/Far-v0', definition, facts, network);
    const rng = Random.fromSeed(4);
    const state = await environment.reset({ max_steps: 9 }, rng, {});
    const { info, state: after } = await environment.step(state, { jump: 1 }, rng);
    t.match(info, { action_is_valid: false, message: /action: Field required; .*jump: Extra inputs/ });
    t.equal(after, state);
    await environment.dispose?.(state);
  });
}

t.test('a server that reports before the first request that it is full is recognized', async t => {
  const { app, environment } = await remote(t, 'websocket', { maxSessions: 1 });
  await app.open();
  await t.rejects(async () => environment.reset({ max_steps: 9 }, Random.fromSeed(1), {}), {
    code: 'remote_unavailable',
    message: /is full \(CAPACITY_REACHED: /,
  });
});
