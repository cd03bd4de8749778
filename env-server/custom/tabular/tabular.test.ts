import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { checkEnvironment } from '../../environments/core/checker/checker.ts';
import { InvalidOptions } from '../../environments/core/environment.ts';
import { resolveConfig, resolveOptions } from '../../environments/core/settings.ts';
import { Problem } from '../../problems.ts';
import type { TabularDefinition } from '../definitions/definition.ts';
import { EXAMPLES } from '../examples.ts';
import { tabularEnvironment as building } from './tabular.ts';

const tabularEnvironment = (envId: string, definition: TabularDefinition) =>
  atOnce(building(envId, definition)).environment;
const crossing = EXAMPLES.tabular.value.definition as unknown as TabularDefinition;

/** A corridor of five rooms; each step to the right succeeds with 0.8. */
const corridor: TabularDefinition = {
  kind: 'tabular',
  title: 'Corridor',
  instruction: 'Walk right.',
  max_episode_steps: 30,
  actions: ['Left', 'Right'],
  start: { 'room 0': 0.5, 'room 1': 0.5 },
  states: Object.fromEntries(
    Array.from({ length: 5 }, (_, room) => [
      `room ${room}`,
      room === 4
        ? { text: 'The exit.', success: true }
        : {
            text: `Room ${room}.`,
            transitions: {
              ...(room > 0 && { Left: [{ to: `room ${room - 1}` }] }),
              Right: [
                { to: `room ${room + 1}`, probability: 0.8, reward: room === 3 ? 1 : 0 },
                { to: `room ${room}`, probability: 0.2 },
              ],
            },
          },
    ]),
  ),
};

function play(definition: TabularDefinition, options: JsonObject = {}, seed = 1) {
  const environment = tabularEnvironment('test/T-v0', definition);
  const rng = Random.fromSeed(seed);
  const config = resolveConfig(environment);
  const state = environment.reset(config, rng, resolveOptions(environment, options));
  return { environment, rng, state: state as JsonObject };
}

t.test('keeps the contract of environments', async t => {
  for (const definition of [crossing, corridor]) {
    t.same((await checkEnvironment(tabularEnvironment('test/T-v0', definition))).findings, []);
  }
});

t.test('outcomes and starts are drawn as often as the definition says', async t => {
  const { environment, state, rng } = play(crossing);
  let far = 0;
  let earned = 0;
  const draws = 20_000;
  for (let i = 0; i < draws; i++) {
    const result = await environment.step(state, 'Swim', rng);
    if (result.terminated) far++;
    earned += result.reward;
  }
  t.ok(Math.abs(earned - (far - 0.2 * (draws - far))) < 1e-6, 'rewards go with their outcomes');
  t.ok(Math.abs(far / draws - 0.6) < 0.015, `${far / draws}`);

  const starts = Array.from({ length: 2000 }, (_, seed) => play(corridor, {}, seed).state.at);
  const first = starts.filter(at => at === 'room 0').length / starts.length;
  t.ok(Math.abs(first - 0.5) < 0.04, `${first}`);
});

t.test('a state without transitions ends the episode, as a success where it says so', async t => {
  const { environment, state, rng } = play(crossing);
  const result = await environment.step(state, 'Ferry', rng);
  const info = { success: true, action_is_valid: true, ended_by: 'far_bank' };
  t.match(result, { reward: 0.5, terminated: true, info });
  t.same(environment.spec.ends, { far_bank: 'far bank' });
  t.equal(environment.observe(result.state, 'text'), 'You have crossed the river.');
  t.match(environment.observe(result.state, 'structured'), {
    state: 'far bank',
    steps: 1,
    valid_actions: [],
  });
});

t.test('an action that is not listed in a state changes nothing', async t => {
  const { environment, state, rng } = play(corridor, { start: 'room 0' });
  const before = rng.state;
  t.same(environment.validActions?.(state), ['Right']);
  for (const action of ['Left', 0, 7, 'Jump', null]) {
    const result = await environment.step(state, action, rng);
    t.match(result, {
      reward: 0,
      terminated: false,
      info: { action_is_valid: false, action_is_effective: false },
    });
    t.equal(result.state, state);
  }
  t.same(rng.state, before);
});

t.test('actions are accepted by id and by name in any case', async t => {
  const { environment, state, rng } = play(crossing);
  t.equal((await environment.step(state, 1, rng)).reward, 0.5);
  t.equal((await environment.step(state, ' ferry ', rng)).reward, 0.5);
});

t.test('options pin the start', async t => {
  t.equal(play(corridor, { start: 'room 3' }).state.at, 'room 3');
  t.throws(() => play(corridor, { start: 'room 9' }), InvalidOptions);
  t.throws(() => play(corridor, { start: 'room 4' }), /nothing can be done/);
});

t.test('the optimal reference earns the most within the remaining steps', async t => {
  const gamble: TabularDefinition = {
    ...crossing,
    max_episode_steps: 3,
    start: { a: 1 },
    actions: ['Take', 'Wait'],
    states: {
      a: { text: 'a', transitions: { Take: [{ to: 'end', reward: 1 }], Wait: [{ to: 'b' }] } },
      b: { text: 'b', transitions: { Take: [{ to: 'end', reward: 3 }], Wait: [{ to: 'b' }] } },
      end: { text: 'end' },
    },
  };
  const { environment } = play(gamble);
  const plan = async (steps: number) =>
    environment.references?.optimal.plan({ at: 'a', steps, max_steps: 3 }, 5, Random.fromSeed(1));
  t.same(await plan(0), ['Wait', 'Take']);
  t.same(await plan(2), ['Take'], 'with one step left waiting earns nothing');
  t.equal(environment.spec.knownOptimum?.success, 0);
});

t.test('the known optimum is what its policy reaches', async t => {
  const environment = tabularEnvironment('test/T-v0', corridor);
  const optimum = environment.spec.knownOptimum?.success as number;
  const reference = environment.references?.optimal;
  let successes = 0;
  const episodes = 2000;
  for (let seed = 0; seed < episodes; seed++) {
    const rng = Random.fromSeed(seed);
    let state = await environment.reset({ max_steps: 6 }, rng, {});
    for (let step = 0; step < 6; step++) {
      const [action] = (await reference?.plan(state, 1, rng)) ?? [];
      const result = await environment.step(state, action, rng);
      state = result.state;
      if (!result.terminated) continue;
      successes++;
      break;
    }
  }
  const short = tabularEnvironment('test/T-v0', { ...corridor, max_episode_steps: 6 });
  const wanted = short.spec.knownOptimum?.success as number;
  t.ok(Math.abs(successes / episodes - wanted) < 0.03, `${successes / episodes} against ${wanted}`);
  t.ok(optimum > wanted && optimum <= 1);
});

t.test('every fault names its place', async t => {
  const broken: TabularDefinition = {
    ...crossing,
    actions: ['Swim', 'Ferry', ' swim '],
    start: { nowhere: 0.5, end: 0.2 },
    states: {
      'a/b': {
        text: '',
        transitions: {
          Swim: [
            { to: 'c', probability: 0.5 },
            { to: 'a/b', probability: 0.6 },
          ],
          Fly: [{ to: 'end' }],
        },
      },
      end: { text: '' },
    },
  };
  try {
    tabularEnvironment('test/T-v0', broken);
    t.fail('was taken');
  } catch (error) {
    t.ok(error instanceof Problem);
    const { code, violations } = error as Problem;
    t.equal(code, 'invalid_request');
    t.same(
      violations?.map(({ pointer, detail }) => `${pointer}: ${detail}`),
      [
        '/definition/actions/2: " swim " occurs twice (case does not count)',
        '/definition/states/a~1b/transitions/Fly: unknown action "Fly"; the actions are Swim, Ferry,  swim ',
        '/definition/states/a~1b/transitions/Swim/0/to: unknown state "c"; the states are a/b, end',
        '/definition/states/a~1b/transitions/Swim: the probabilities sum to 1.1, not to 1',
        '/definition/start/nowhere: unknown state "nowhere"; the states are a/b, end',
        '/definition/start/end: an episode cannot start in "end": nothing can be done there',
        '/definition/start: the probabilities sum to 0.7, not to 1',
      ],
    );
  }
});

t.test('names that are special in JavaScript are ordinary names', async t => {
  const states = JSON.parse(
    '{"__proto__":{"text":"here","transitions":{"constructor":[{"to":"toString","reward":1}]}},"toString":{"text":"there"}}',
  );
  const { environment, state, rng } = play({
    ...crossing,
    actions: ['constructor'],
    start: JSON.parse('{"__proto__":1}'),
    states,
  });
  t.equal(environment.observe(state, 'text'), 'here');
  t.match(await environment.step(state, 'constructor', rng), { reward: 1, terminated: true });
});

t.test('a large process is planned within bounded work', async t => {
  const size = 5000;
  const states = Object.fromEntries(
    Array.from({ length: size }, (_, index) => [
      `s${index}`,
      index === size - 1
        ? { text: 'end', success: true }
        : {
            text: `${index}`,
            transitions: {
              on: [{ to: `s${index + 1}`, reward: index === size - 2 ? 1 : 0 }],
              back: [{ to: 's0' }],
            },
          },
    ]),
  );
  const environment = tabularEnvironment('test/T-v0', {
    ...crossing,
    max_episode_steps: 100_000,
    actions: ['on', 'back'],
    start: { s0: 1 },
    states,
  });
  const plan = await environment.references?.optimal.plan(
    { at: 's4800', steps: 0, max_steps: 100_000 },
    2000,
    Random.fromSeed(1),
  );
  t.equal(plan?.length, 199);
  t.ok(plan?.every(action => action === 'on'));
  t.equal(environment.describe({}).vocabulary, undefined);
});

function problemOf(definition: TabularDefinition): Problem {
  try {
    tabularEnvironment('me/C-v0', definition);
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  throw new Error('there was no problem');
}

const warningsFor = (more: Partial<TabularDefinition>) =>
  atOnce(building('me/C-v0', { ...corridor, ...more })).warnings;
const room = (text: string, ...to: string[]) => ({
  text,
  transitions: { Right: to.map(name => ({ to: name, probability: 1 / to.length })) },
});

t.test('a process without an end and unreachable states cause warnings, not errors', async t => {
  t.same(warningsFor({}), []);
  const round = { start: { a: 1 }, states: { a: room('A.', 'b'), b: room('B.', 'a') } };
  t.match(warningsFor(round), [/^no state that ends the episode can be reached/]);
  const lost = { start: { a: 1 }, states: { a: room('A.', 'z'), b: room('B.', 'a'), z: { text: 'Z.' } } };
  t.match(warningsFor(lost), [/^1 of 3 states cannot be reached .*: b$/]);
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`s${i}`, { text: 'S.' }]));
  const [warning] = warningsFor({ start: { a: 1 }, states: { a: room('A.', 's0'), ...many } });
  t.match(warning, /^49 of 51 states .* and 41 more$/);
});

t.test('a thousand faults in large tables are reported briefly and together', async t => {
  const names = Array.from({ length: 20_000 }, (_, i) => `state ${i}`);
  const broken = Array.from({ length: 1000 }, () => ({ to: 'x'.repeat(5000), probability: 0.001 }));
  const states = Object.fromEntries(
    names.map((name, i) => [name, i < 50 ? { text: '', transitions: { Right: broken } } : { text: '' }]),
  );
  const problem = problemOf({ ...corridor, start: { 'state 0': 1 }, states });
  t.equal(problem.violations?.length, 20);
  t.ok(JSON.stringify(problem.violations).length < 20_000);
  const long = problemOf({ ...corridor, start: { a: 1 }, states: { ['a'.repeat(300)]: { text: '' } } });
  t.match(long.message, /the name has 300 characters; at most 256 are taken/);
});

t.test('planning a process that never converges stays within its limits of work and memory', async t => {
  const states = Object.fromEntries(
    Array.from({ length: 20_000 }, (_, i) => [
      `s${i}`,
      { text: '', transitions: { Right: [{ to: `s${(i + 1) % 20_000}`, reward: 1 }] } },
    ]),
  );
  const definition = { ...corridor, max_episode_steps: 100_000, start: { s0: 1 }, states };
  let turns = 0;
  const work = building('me/Endless-v0', definition);
  for (let next = work.next(); !next.done; next = work.next()) turns++;
  t.ok(turns > 1000, `${turns} chances for others`);
  t.ok(turns < 20_000, `${turns} slices of at most 1,000 states: value iteration ended`);
});

t.test('an end is named where episodes end, and nowhere else', async t => {
  const { environment, state, rng } = play(corridor, { start: 'room 3' });
  for (let i = 0; i < 9; i++) {
    const { terminated, info } = await environment.step(state, 'Right', rng);
    t.notOk('ended_by' in info, terminated ? 'this author names no end' : 'a step within the episode');
  }
  const midway = { ...crossing, states: { ...crossing.states } };
  midway.states['near bank'] = { ...crossing.states['near bank'], ended_by: 'near_bank' };
  t.throws(() => tabularEnvironment('me/C-v0', midway), /no episode ends in a state with transitions/);
  const worded = { ...crossing, ends: { far_bank: 'Came to the far bank' } };
  t.same(tabularEnvironment('me/C-v0', worded).spec.ends, { far_bank: 'Came to the far bank' });
});
