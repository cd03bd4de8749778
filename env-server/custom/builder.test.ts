import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { checkEnvironment } from '../environments/core/checker/checker.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { resolveConfig, stepLimit } from '../environments/core/settings.ts';
import { createRegistry } from '../environments/registry.ts';
import { composedEnvironment } from './builder.ts';
import type { ComposedDefinition } from './definitions/definition.ts';

const registry = createRegistry();
const compose = (definition: Omit<ComposedDefinition, 'kind'>): AnyEnvironment =>
  composedEnvironment('me/Own-v2', { kind: 'composed', ...definition }, registry);

t.test('values of a composed environment are defaults that sessions may override', async t => {
  const lake = compose({
    env_id: 'FrozenLake-v0',
    config: { size: 6, success_rate: 1, symbols: { hole: '@' } },
  });
  t.match(resolveConfig(lake), {
    size: 6,
    success_rate: 1,
    p_frozen: 0.9,
    symbols: { hole: '@', goal: 'G' },
  });
  t.match(resolveConfig(lake, { size: 3 }), { size: 3, success_rate: 1 });
  t.throws(() => resolveConfig(lake, { size: 1000 }), /size/);
  t.match(lake.describe(resolveConfig(lake)).legend, [{ symbol: 'P' }]);
  t.ok(lake.describe(resolveConfig(lake)).legend?.some(({ symbol }) => symbol === '@'));
  t.match(resolveConfig(registry.get('FrozenLake-v0')), { size: 4 }, 'the original keeps its own');
});

t.test('a composed environment may start from a preset', async t => {
  const preset = compose({ env_id: 'Sokoban-v0', config: { preset: 'simple' } });
  const wanted = resolveConfig(registry.get('Sokoban-v0'), { preset: 'simple' });
  t.same(resolveConfig(preset), wanted);
});

t.test('wrappers apply in the listed order', async t => {
  const definition: Omit<ComposedDefinition, 'kind'> = {
    env_id: 'FrozenLake-v0',
    wrappers: [
      { name: 'reward_scale', options: { factor: 10 } },
      { name: 'step_penalty', options: { penalty: 1 } },
    ],
  };
  const lake = compose(definition);
  t.same(lake.spec.rewardRange, [-1, 9]);
  t.same(compose({ ...definition, wrappers: definition.wrappers?.toReversed() }).spec.rewardRange, [-10, 0]);
  const state = await lake.reset(resolveConfig(lake), Random.fromSeed(1), {});
  t.equal((await lake.step(state, 'Left', Random.fromSeed(1))).reward, -1);
});

t.test('a composed environment has its own name, version and step limit, and no known optimum', async t => {
  const plain = compose({ env_id: 'FrozenLake-v0', title: 'Mine', tags: ['own'] });
  t.match(plain.spec, {
    id: 'me/Own-v2',
    title: 'Mine',
    tags: ['composed', 'own'],
    history: [{ version: 2 }],
  });
  t.match(plain.spec.description, /^`FrozenLake-v0`/);
  const short = compose({ env_id: 'FrozenLake-v0', config: { max_steps: 7 } });
  t.equal(short.spec.maxEpisodeSteps, 7);
  t.equal(stepLimit(short.spec, resolveConfig(short)), 7);
  t.equal(short.spec.knownOptimum, undefined);
  t.same(plain.spec.knownOptimum, registry.get('FrozenLake-v0').spec.knownOptimum);
});

t.test('the description reflects the wrappers', async t => {
  const limited = (max_steps: number, more: JsonObject = {}) =>
    compose({ env_id: 'FrozenLake-v0', wrappers: [{ name: 'time_limit', options: { max_steps } }], ...more });
  t.equal(limited(10).spec.maxEpisodeSteps, 10);
  t.equal(stepLimit(limited(10).spec, resolveConfig(limited(10))), 10);
  t.equal(stepLimit(limited(10).spec, resolveConfig(limited(10), { max_steps: 7 })), 7);
  t.equal(limited(500, { config: { max_steps: 200 } }).spec.maxEpisodeSteps, 200);
  const turns = compose({
    env_id: 'FrozenLake-v0',
    wrappers: [{ name: 'time_limit', options: { max_steps: 10 } }, { name: 'action_text' }],
  });
  t.match(turns.spec, { maxEpisodeSteps: 10, actionSpace: { type: 'Text' } });
  t.match(turns.spec.exampleAction, /<answer>/);
  const clipped = compose({
    env_id: 'FrozenLake-v0',
    wrappers: [{ name: 'reward_clip', options: { min: 0, max: 0.5 } }, { name: 'step_penalty' }],
  });
  t.same(clipped.spec.rewardRange, [-0.01, 0.49]);
});

t.test('layers of environments composed from composed ones are bounded', async t => {
  const registry = createRegistry();
  const penalty = { name: 'step_penalty', options: { penalty: 0 } };
  let env_id = 'FrozenLake-v0';
  for (let i = 0; i < 4; i++) {
    const next = `me/L${i}-v0`;
    const wrappers = new Array(7).fill(penalty);
    registry.register(composedEnvironment(next, { kind: 'composed', env_id, wrappers }, registry));
    env_id = next;
  }
  t.throws(() => composedEnvironment('me/L4-v0', { kind: 'composed', env_id }, registry), {
    code: 'invalid_request',
    message: /these are 33 layers, at most 32 are taken/,
  });
});

t.test('keeps the contract of environments', async t => {
  const definitions: Omit<ComposedDefinition, 'kind'>[] = [
    { env_id: 'Bandit-v0' },
    {
      env_id: 'FrozenLake-v0',
      wrappers: [{ name: 'history', options: { turns: 2 } }, { name: 'action_text' }],
    },
    { env_id: 'FrozenLake-v0', wrappers: [{ name: 'time_limit', options: { max_steps: 3 } }] },
  ];
  for (const definition of definitions) {
    const { findings } = await checkEnvironment(compose(definition), { configs: [['default', {}]] });
    t.same(findings, [], definition.env_id);
  }
});

t.test('errors of composed definitions name the place', async t => {
  const pointerOf = (definition: Omit<ComposedDefinition, 'kind'>): string | undefined => {
    try {
      compose(definition);
      return undefined;
    } catch (error) {
      return (error as { violations?: { pointer: string }[] }).violations?.[0].pointer;
    }
  };
  t.equal(pointerOf({ env_id: 'FrozenLak-v0' }), '/definition/env_id');
  t.equal(pointerOf({ env_id: 'FrozenLake-v0', config: { sise: 3 } }), '/definition/config/sise');
  t.equal(pointerOf({ env_id: 'FrozenLake-v0', config: { preset: 'odd' } }), '/definition/config/preset');
  t.equal(
    pointerOf({ env_id: 'FrozenLake-v0', wrappers: [{ name: 'time_limit', options: { max_steps: 0 } }] }),
    '/definition/wrappers/0/options/max_steps',
  );
});
