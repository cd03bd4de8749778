import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { testApp } from '../../../test/app.test-data.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import type { AnyEnvironment } from '../../environments/core/environment.ts';
import { resolveConfig } from '../../environments/core/settings.ts';
import type { Problem } from '../../problems.ts';
import { type ScriptDefinition, sourceOf } from '../definitions/definition.ts';
import { EXAMPLES } from '../examples.ts';
import { ScriptPool } from './pool.ts';
import { scriptEnvironment } from './script.ts';

const pool = new ScriptPool({
  workers: 2,
  timeMs: 500,
  memoryBytes: 32 * 1024 * 1024,
  outputLength: 100_000,
  valueBytes: 100_000,
});
t.teardown(() => pool.close());

const guess = EXAMPLES.script.value.definition as unknown as ScriptDefinition;

/** Dice: every action draws; the valid actions depend on the state. */
const dice: ScriptDefinition = {
  kind: 'script',
  title: 'Dice',
  instruction: 'Roll until you have seven.',
  action_space: { type: 'Discrete', names: ['Roll', 'Keep'], start: 1 },
  example_action: 'Roll',
  reward_range: [0, 6],
  options_schema: { type: 'object', properties: { total: { type: 'integer', minimum: 0 } } },
  source: [
    'const reset = (config, rng, options) => ({ total: options.total ?? rng.integer(3), max: config.max_steps });',
    'const step = (state, action, rng) => {',
    '  if (action === "Keep" && state.total === 0) return { state, info: { action_is_valid: false } };',
    '  const roll = action === "Roll" ? 1 + rng.integer(6) : 0;',
    '  const total = state.total + roll;',
    '  return { state: { total, max: state.max }, reward: roll, terminated: total >= 7, info: { success: total === 7 } };',
    '};',
    'const observe = ({ total }) => ({ text: "You have " + total + ".", structured: { total } });',
    'const validActions = ({ total }) => (total === 0 ? ["Roll"] : ["Roll", "Keep"]);',
  ],
};

async function made(definition: ScriptDefinition): Promise<AnyEnvironment> {
  const facts = await pool.load(
    pool.script({ name: 'test/S-v0', source: sourceOf(definition), owner: 'me' }),
  );
  return scriptEnvironment('test/S-v0', definition, facts, 'me', pool);
}

async function begin(definition: ScriptDefinition, options: JsonObject = {}, seed = 1) {
  const environment = await made(definition);
  const rng = Random.fromSeed(seed);
  const state = await environment.reset(resolveConfig(environment), rng, options);
  return { environment, rng, state };
}

t.test('keeps the contract of environments', async t => {
  for (const definition of [guess, dice])
    t.same((await checkEnvironment(await made(definition))).findings, []);
});

t.test('an end has the name that the script gives it, and the meaning of the definition', async t => {
  const { environment, rng, state } = await begin(guess);
  t.same(environment.spec.ends, { right_guess: 'Guessed the number' });
  const ends: unknown[] = [];
  for (let number = 1; number <= 10; number++) {
    const { terminated, info } = await environment.step(state, String(number), rng);
    t.equal(info.ended_by, terminated ? 'right_guess' : undefined);
    ends.push(info.ended_by);
  }
  t.equal(ends.filter(Boolean).length, 1);
});

t.test('draws continue the generator of the session', async t => {
  const { environment, rng, state } = await begin(dice, { total: 1 });
  t.equal(rng.seed, 1, 'a pinned start draws nothing');
  const twin = Random.fromSeed(1);
  const result = await environment.step(state, 'Roll', rng);
  t.equal(result.reward, 1 + twin.integer(6));
  t.same(rng.state, twin.state);
});

t.test('a state that went through JSON has the same future', async t => {
  const { environment, rng, state } = await begin(dice);
  const copy = JSON.parse(JSON.stringify(state));
  const twin = Random.fromState(rng.state);
  for (const action of ['Roll', 2, 'keep', 'Jump']) {
    t.same(await environment.step(copy, action, twin), await environment.step(state, action, rng));
  }
});

t.test(
  'the reference `random` draws from the valid actions where the definition names no actions',
  async t => {
    const listed = { ...dice, action_space: { type: 'Text' as const }, example_action: 'Roll' };
    const { environment, state } = await begin(listed, { total: 3 });
    const drawn = Array.from({ length: 32 }, (_, seed) =>
      environment.references?.random.plan(state, 4, Random.fromSeed(seed)),
    );
    t.same(new Set(drawn.map(String)), new Set(['Roll', 'Keep']));
    const silent = await begin({
      ...listed,
      source: [...dice.source.slice(0, -1), 'const validActions = () => [];'],
    });
    t.same(silent.environment.references?.random.plan(silent.state, 4, Random.fromSeed(1)), []);
    const named = await made({ ...listed, actions: ['Keep'] });
    t.equal(named.references?.random.title, 'Example actions, drawn uniformly', 'its own list comes first');
  },
);

t.test('observations, valid actions and the configuration reach their places', async t => {
  const { environment, state } = await begin(dice, { total: 0 });
  t.equal(environment.observe(state, 'text'), 'You have 0.');
  t.same(environment.observe(state, 'structured'), { total: 0 });
  t.same(environment.validActions?.(state), ['Roll']);
  t.match(state, { script: '{"total":0,"max":100}' });
  t.equal((await made(guess)).validActions, undefined);
  const guessing = await begin(guess);
  t.match(guessing.environment.observe(guessing.state, 'structured'), { secret: Number, last: null });
});

t.test('an action outside the space never reaches the script', async t => {
  const { environment, rng, state } = await begin(dice);
  for (const action of ['Jump', 0, 3, null, {}]) {
    const result = await environment.step(state, action, rng);
    t.equal(result.state, state);
    t.match(result.info, { action_is_valid: false, action_is_effective: false, success: false });
  }
});

t.test('answers of the wrong form are faults with a reason', async t => {
  const faulty = (step: string, observe = '"x"') =>
    begin({
      ...dice,
      source: `const reset = () => ({}); const step = () => (${step}); const observe = () => (${observe});`,
    });
  const cases: [step: string, message: RegExp][] = [
    ['{ state: {}, reward: "1" }', /reward must be a finite number, got a value of type string/],
    [
      '{ state: {}, reward: NaN }',
      /reward must be a finite number, got null, which JSON has in place of NaN/,
    ],
    ['{ state: {}, reward: 1e308 }', /reward must be from -1000000000000 to 1000000000000, got 1e\+308/],
    ['{ state: {}, terminated: 1 }', /terminated must be a boolean/],
    ['{ state: {}, truncated: "no" }', /truncated must be a boolean/],
    ['{ state: {}, info: [] }', /info must be an object, got a list/],
    ['{ state: {}, info: { success: "yes" } }', /info.success must be a boolean/],
    ['(Array.prototype.toJSON = () => 5, { state: {} })', /rng.state must be 4 unsigned 32-bit integers/],
    [
      '(Object.defineProperty(Random.prototype, "state", { value: [] }), { state: {} })',
      /rng.state must be 4 unsigned/,
    ],
  ];
  for (const [step, message] of cases) {
    const { environment, rng, state } = await faulty(step);
    const before = rng.state;
    await t.rejects(async () => environment.step(state, 'Roll', rng), { code: 'environment_fault', message });
    t.same(rng.state, before, 'a step that failed draws nothing');
  }
  await t.rejects(faulty('{ state: {} }', '5'), /the observation must be text or an object/);
  await t.rejects(faulty('{ state: {} }', '({ text: "x", structured: 3 })'), /structured must be an object/);
});

t.test('contradictory definitions are rejected with their location', async t => {
  const pointersOf = (more: Partial<ScriptDefinition>): (string | undefined)[] => {
    try {
      scriptEnvironment('test/S-v0', { ...dice, ...more }, { valid_actions: false }, 'me', pool);
      return [];
    } catch (error) {
      return ((error as Problem).violations ?? []).map(({ pointer }) => pointer);
    }
  };
  t.same(pointersOf({ reward_range: [2, 1] }), ['/definition/reward_range']);
  t.same(pointersOf({ example_action: 'Jump' }), ['/definition/example_action']);
  t.same(pointersOf({ action_space: { type: 'Discrete', names: ['Roll', 'roll '] } }), [
    '/definition/action_space/names',
  ]);
  t.same(pointersOf({ config_schema: { type: 'array' } }), ['/definition/config_schema/type']);
  t.same(pointersOf({ action_space: { type: 'Json', schema: { type: 'odd' } } }), [
    '/definition/action_space/schema/type',
  ]);
});

t.test('actions may be JSON of a schema', async t => {
  const { environment, rng, state } = await begin({
    ...dice,
    action_space: {
      type: 'Json',
      schema: { type: 'object', required: ['x'], properties: { x: { type: 'integer' } } },
    },
    example_action: { x: 1 },
    source:
      'const reset = () => ({ x: 0 }); const step = (s, a) => ({ state: { x: s.x + a.x } }); const observe = s => String(s.x);',
  });
  const result = await environment.step(state, { x: 5 }, rng);
  t.equal(environment.observe(result.state, 'text'), '5');
  t.match((await environment.step(state, { x: 'five' }, rng)).info, { action_is_valid: false });
});

t.test('listed words and actions are described, and the random player draws from the actions', async t => {
  const actions = ['1', '2', '3'];
  const definition = { ...guess, vocabulary: ['Guess.', ...actions], actions };
  const environment = await made(definition);
  t.match(environment.describe(resolveConfig(environment)), {
    vocabulary: definition.vocabulary,
    exampleActions: actions,
  });
  const { state } = await begin(definition);
  const { random } = environment.references!;
  const drawn = await random.plan(state, 100, Random.fromSeed(1));
  t.same(new Set(drawn), new Set(actions));
  t.same(await random.plan(state, 100, Random.fromSeed(1)), drawn, 'the same seed, the same actions');
  t.equal(
    (await made({ ...guess, actions: undefined })).references,
    undefined,
    'without a list, nobody plays at random',
  );
  t.same((await checkEnvironment(environment)).findings, []);
});

t.test('the random player makes a new choice at each step of an episode without chance', async t => {
  const app = await testApp(t);
  const actions = Array.from({ length: 10 }, (_, index) => String(index));
  const definition = { ...guess, actions, max_episode_steps: 20 };
  t.equal((await app.ask('POST', '/v1/envs', { env_id: 'me/Draws-v0', definition })).status, 201);
  const { body } = await app.ask('POST', '/v1/sessions', { env_id: 'me/Draws-v0', seed: 1 });
  const session = `/v1/sessions/${body.session_id}`;
  const drawn: unknown[] = [];
  for (let step = 0; step < 12; step++) {
    const ask = () => app.ask('POST', `${session}/reference`, { policy: 'random' });
    drawn.push((await ask()).body.actions);
    t.same((await ask()).body.actions, drawn.at(-1), 'the same at the same step');
    await app.ask('POST', `${session}/step`, { action: 'no number' });
  }
  t.ok(new Set(drawn.map(String)).size >= 5, String(drawn));
});

t.test('lists that do not fit the definition are rejected with their location', async t => {
  const refused = (definition: ScriptDefinition, message: RegExp) =>
    t.throws(() => scriptEnvironment('test/S-v0', definition, { valid_actions: false }, 'me', pool), {
      message,
    });
  refused({ ...guess, actions: ['1', 'x'.repeat(21)] }, /actions\/1: is not an action of the action space/);
  refused({ ...dice, actions: ['Roll'] }, /actions: .* a discrete space has the names/);
  // Characters of three bytes each: fewer characters than bytes are allowed.
  const long = Array.from({ length: 1100 }, () => '語'.repeat(20));
  refused({ ...guess, actions: long }, /actions: has 69301 bytes as JSON; at most 65536/);
  refused({ ...guess, vocabulary: long }, /vocabulary: has 69301 bytes as JSON; at most 65536/);
});

t.test('a script that keeps something outside its state does not pass the check', async t => {
  const environment = await made({
    ...dice,
    source:
      'let steps = 0; const reset = () => ({}); const step = () => ({ state: { n: ++steps } }); const observe = s => JSON.stringify(s);',
  });
  const report = await checkEnvironment(environment);
  t.equal(report.passed, false);
  t.ok(report.findings.some(({ rule }) => rule === 'snapshot' || rule === 'determinism'));
});
