import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Problem } from '../../../shared/problems.ts';
import { Random } from '../../../shared/random.ts';
import { checkEnvironment } from '../../environments/checker/checker.ts';
import { InvalidOptions } from '../../environments/environment.ts';
import { resolveConfig, resolveOptions } from '../../environments/settings.ts';
import { EXAMPLES } from '../examples.ts';
import type { TabularDefinition } from './definition.ts';
import { tabularEnvironment } from './tabular.ts';

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
  t.match(result, { reward: 0.5, terminated: true, info: { success: true, action_is_valid: true } });
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

t.test('actions go by id and by name in any case', async t => {
  const { environment, state, rng } = play(crossing);
  t.equal((await environment.step(state, 1, rng)).reward, 0.5);
  t.equal((await environment.step(state, ' ferry ', rng)).reward, 0.5);
});

t.test('options pin the start', async t => {
  t.equal(play(corridor, { start: 'room 3' }).state.at, 'room 3');
  t.throws(() => play(corridor, { start: 'room 9' }), InvalidOptions);
  t.throws(() => play(corridor, { start: 'room 4' }), /nothing can be done/);
});

t.test('the optimal reference earns the most within the steps that are left', async t => {
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

t.test('every fault is told with where it is', async t => {
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
        '/definition/states/a~1b/transitions/Swim/0/to: unknown state "c"; the states are a/b, end',
        '/definition/states/a~1b/transitions/Swim: the probabilities sum to 1.1, not to 1',
        '/definition/states/a~1b/transitions/Fly: unknown action "Fly"; the actions are Swim, Ferry,  swim ',
        '/definition/start/nowhere: unknown state "nowhere"; the states are a/b, end',
        '/definition/start/end: an episode cannot start in "end": nothing can be done there',
        '/definition/start: the probabilities sum to 0.7, not to 1',
      ],
    );
  }
});

t.test('names that mean something to JavaScript are only names', async t => {
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
