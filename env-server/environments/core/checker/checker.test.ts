import t from 'tap';
import type { Json, JsonObject } from '../../../../shared/json.ts';
import { Random } from '../../../../shared/random.ts';
import { frozenLake } from '../../frozenlake/frozenlake.ts';
import { createRegistry } from '../../registry.ts';
import {
  type AnyEnvironment,
  type EnvironmentSpec,
  observationSpaces,
  type Transition,
} from '../environment.ts';
import { resolveConfig } from '../settings.ts';
import { dict, integers, type ObservationSpaces, type Space } from '../spaces.ts';
import { checkEnvironment } from './checker.ts';
import { formatReport, RULES, type Rule } from './play.ts';

const lake = frozenLake as AnyEnvironment;
const FEW = { configs: [['default', {}]] as [string, JsonObject][], episodes: 3, steps: 12 };

function withSpec(changes: Partial<EnvironmentSpec>): AnyEnvironment {
  return { ...lake, spec: { ...lake.spec, ...changes } };
}

const config = resolveConfig(lake, {});
const lakeSpaces = observationSpaces(lake, config).structured as Extract<Space, { type: 'Dict' }>;

function withSpaces(changes: Partial<ObservationSpaces>): AnyEnvironment {
  return { ...lake, observationSpaces: given => ({ ...observationSpaces(lake, given), ...changes }) };
}

/** The lake with every step's result changed. */
function withStep(
  change: (result: Transition<Json>, state: Json, action: Json) => Transition<Json>,
): AnyEnvironment {
  return {
    ...lake,
    step: (state, action, rng) => change(lake.step(state, action, rng) as Transition<Json>, state, action),
  };
}

let calls = 0;
/** A number of the latest episode's level, which a careless environment keeps in a variable. */
let latest = 0;
const BROKEN: {
  readonly [name in string]: readonly [rule: Rule, message: RegExp, environment: AnyEnvironment];
} = {
  'an id without a version': ['spec', /does not read/, withSpec({ id: 'Lake' })],
  'a reward range upside down': ['spec', /is not a range/, withSpec({ rewardRange: [1, 0] })],
  'a preset that its schema refuses': [
    'spec',
    /size must be <= 32, got 1000000/,
    withSpec({ presets: { huge: { size: 1e6 } } }),
  ],
  'an example action that is none': ['spec', /not in the action space/, withSpec({ exampleAction: 'Jump' })],
  'no instruction': [
    'description',
    /instruction is empty/,
    { ...lake, describe: () => ({ instruction: '' }) },
  ],
  'too few action names': [
    'description',
    /1 actions are named, the space has 4/,
    { ...lake, describe: () => ({ instruction: 'Go.', actions: ['Left'] }) },
  ],
  'a step that throws for an unknown action': [
    'no_exceptions',
    /threw what is/,
    withStep((result, _state, action) => {
      if (!result.info.action_is_valid) throw new Error(`what is ${JSON.stringify(action)}?`);
      return result;
    }),
  ],
  'a reset that throws': [
    'no_exceptions',
    /reset threw no ice/,
    {
      ...lake,
      reset() {
        throw new Error('no ice');
      },
    },
  ],
  'a state with a date in it': [
    'plain_state',
    /not plain JSON/,
    withStep(result => ({
      ...result,
      state: { ...(result.state as JsonObject), at: new Date(0) as unknown as Json },
    })),
  ],
  'a step that alters its state': [
    'immutability',
    /read only/,
    withStep((result, state) => {
      (state as { steps: number }).steps = 7;
      return result;
    }),
  ],
  'an observation that is not text': [
    'observation_space',
    /grid form \{"grid":1\} is not text/,
    { ...lake, observe: () => ({ grid: 1 }) },
  ],
  'an observation that is too long': [
    'observation_space',
    /characters, more than 4/,
    withSpaces({ text: { type: 'Text', maxLength: 4 } }),
  ],
  'an observation with an unknown character': [
    'observation_space',
    /grid form has the character "_", which is not in the charset/,
    withSpaces({ text: { type: 'Text', maxLength: 100_000, charset: 'PGOX√\n' } }),
  ],
  'a structured observation with an unknown key': [
    'observation_space',
    /structured form has the unknown key rows/,
    withSpaces({ structured: dict({}) }),
  ],
  'a number outside its space': [
    'observation_space',
    /structured form steps: \d+ is outside \[0, 0\]/,
    withSpaces({ structured: dict({ ...lakeSpaces.spaces, steps: integers(0, 0) }) }),
  ],
  'unknown actions that count as valid': [
    'action_space',
    /not called invalid/,
    withStep(result => ({ ...result, info: { ...result.info, action_is_valid: true } })),
  ],
  'unknown actions that change something': [
    'action_space',
    /changed the state/,
    withStep(result =>
      result.info.action_is_valid
        ? result
        : { ...result, state: { ...(result.state as JsonObject), steps: 99 } },
    ),
  ],
  'a list of valid actions with a wrong one': [
    'valid_actions',
    /"Jump" is listed as valid and called invalid/,
    { ...lake, validActions: () => ['Up', 'Jump'] },
  ],
  'a reward out of range': [
    'reward_range',
    /paid 5, outside/,
    withStep(result => ({ ...result, reward: 5 })),
  ],
  'a reward that is not a number': [
    'reward_range',
    /paid NaN/,
    withStep(result => ({ ...result, reward: Number.NaN })),
  ],
  'an info without success': [
    'info',
    /info.success is undefined/,
    withStep(result => {
      const { success: _success, ...info } = result.info;
      return { ...result, info: info as unknown as Transition<Json>['info'] };
    }),
  ],
  'a reward component that is not a number': [
    'info',
    /info.rewards.format is "good", no finite number/,
    withStep(result => ({
      ...result,
      info: { ...result.info, rewards: { format: 'good' as unknown as number } },
    })),
  ],
  'a level that differs from reset to reset': [
    'determinism',
    /seed \d began with/,
    {
      ...lake,
      reset: (config, rng, options) => ({
        ...(lake.reset(config, rng, options) as JsonObject),
        steps: calls++,
      }),
    },
  ],
  'a variable that all episodes share': [
    'determinism',
    /step 1 .* differently when other episodes were played at the same time: keep what an episode needs in its state/,
    {
      ...lake,
      reset(config, rng, options) {
        latest = Random.fromState(rng.state).float();
        return lake.reset(config, rng, options);
      },
      step: (state, action, rng) => ({
        ...(lake.step(state, action, rng) as Transition<Json>),
        reward: latest,
      }),
    },
  ],
  'a memory outside the state': [
    'snapshot',
    /differently from a copy/,
    withStep(result => ({ ...result, info: { ...result.info, call: calls++ } })),
  ],
  'a use of Math.random': [
    'global_randomness',
    /step read Math.random/,
    withStep(result => (Math.random() < 2 ? result : result)),
  ],
  'a look at the clock': [
    'global_randomness',
    /step read new Date/,
    withStep(result => (new Date().getFullYear() > 0 ? result : result)),
  ],
  'a policy that plans nonsense': [
    'references',
    /planned "Jump", which is called invalid/,
    { ...lake, references: { optimal: { title: 'Jumps', plan: () => ['Jump'] } } },
  ],
  'a picture that is too small': [
    'rendering',
    /8 × 8 has 4 bytes/,
    { ...lake, render: () => ({ width: 8, height: 8, data: new Uint8Array(4) }) },
  ],
};

t.test('each rule finds the environment that breaks it', async t => {
  for (const [name, [rule, message, environment]] of Object.entries(BROKEN)) {
    const report = await checkEnvironment(environment, FEW);
    t.equal(report.passed, false, name);
    t.ok(
      report.findings.some(finding => finding.rule === rule && message.test(finding.message)),
      `${name}: ${JSON.stringify(report.findings)}`,
    );
  }
  t.same(
    new Set(Object.values(BROKEN).map(([rule]) => rule)),
    new Set(Object.keys(RULES)),
    'every rule has a test',
  );
});

t.test('ends without a name, or with an unknown one, are hints and no faults', async t => {
  const named = await checkEnvironment(lake, FEW);
  t.equal(named.warnings, undefined);
  const change = (end: Json | undefined) =>
    withStep(result => {
      const { ended_by: _own, ...info } = result.info;
      const changed = result.terminated && end !== undefined ? { ...info, ended_by: end } : info;
      return { ...result, info: changed as Transition<Json>['info'] };
    });
  const unnamed = await checkEnvironment(change(undefined), { ...FEW, steps: 200 });
  t.equal(unnamed.passed, true);
  t.match(unnamed.warnings, [/has no info.ended_by/]);
  t.match(formatReport(unnamed), /hint a step that ends an episode has no info.ended_by/);
  for (const [end, shown] of [
    ['ice', /"ice", which is not among the ends goal, hole, time_limit/],
    [7, /is 7, which/],
  ] as const) {
    const { warnings, passed } = await checkEnvironment(change(end), { ...FEW, steps: 200 });
    t.equal(passed, true);
    t.match(warnings, [shown]);
  }
});

t.test('the clock and Math.random are themselves again afterwards', async t => {
  const { random } = Math;
  const { now } = Date;
  await checkEnvironment(lake, FEW);
  t.equal(Math.random, random);
  t.equal(Date.now, now);
  t.ok(new Date() instanceof Date);
});

t.test('the report is readable', async t => {
  const report = await checkEnvironment(withSpec({ id: 'Lake' }), FEW);
  const text = formatReport(report);
  t.match(text, /^Lake: FAILED \(1 configuration, 3 episodes, \d+ steps\)/);
  t.match(text, /FAIL spec: .*\n {9}the id "Lake" does not read/);
  t.match(text, /ok {3}snapshot/);
});

for (const environment of createRegistry().list()) {
  t.test(`${environment.spec.id} passes`, async t => {
    t.same((await checkEnvironment(environment, { episodes: 1, steps: 12 })).findings, []);
  });
}
