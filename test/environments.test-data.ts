import { Type } from 'typebox';
import type {
  AnyEnvironment,
  Environment,
  EnvironmentSpec,
  StepInfo,
} from '../env-server/environments/core/environment.ts';
import { createRegistry, type Registry } from '../env-server/environments/registry.ts';
import type { Json } from '../shared/json.ts';
import type { Random } from '../shared/random.ts';

/** Small environments for tests of the server: one that counts, one that waits, one that fails, one without copies. */

const info = (valid: boolean): StepInfo => ({
  success: false,
  action_is_valid: valid,
  action_is_effective: valid,
});

const spec = (id: string, more: Partial<EnvironmentSpec> = {}): EnvironmentSpec => ({
  id,
  title: id,
  description: 'For tests.',
  tags: ['test'],
  configSchema: Type.Object(
    {
      goal: Type.Integer({ default: 3, minimum: 1 }),
      max_steps: Type.Integer({ default: 5, minimum: 1 }),
    },
    { additionalProperties: false },
  ),
  optionsSchema: Type.Object({ start: Type.Optional(Type.Integer()) }, { additionalProperties: false }),
  presets: { long: { goal: 1000, max_steps: 1000 } },
  observationSpace: { type: 'Text', maxLength: 100 },
  actionSpace: { type: 'Discrete', n: 2, names: ['add', 'draw'] },
  observationFormats: ['text'],
  rewardRange: [0, 1],
  maxEpisodeSteps: 5,
  exampleAction: 'add',
  history: [{ version: 0, change: 'First.' }],
  ...more,
});

type CountConfig = { readonly goal: number; readonly max_steps: number };
type CountState = { readonly count: number; readonly goal: number; readonly drawn: number };

function countStep(state: CountState, action: Json, rng: Random) {
  const add = action === 'add' || action === 0;
  const draw = action === 'draw' || action === 1;
  const next = {
    ...state,
    count: state.count + (add ? 1 : 0),
    drawn: draw ? rng.uint32() : state.drawn,
  };
  return {
    state: add || draw ? next : state,
    reward: add ? 1 : 0,
    terminated: next.count >= next.goal,
    info: { ...info(add || draw), success: next.count >= next.goal },
  };
}

const counting = {
  describe: (config: CountConfig) => ({
    instruction: `Count to ${config.goal}.`,
    actions: ['add', 'draw'],
    vocabulary: ['add', 'draw'],
  }),
  reset: (config: CountConfig, rng: Random, options: { readonly [key: string]: Json }): CountState => ({
    count: (options.start as number | undefined) ?? 0,
    goal: config.goal,
    drawn: rng.uint32(),
  }),
  step: countStep,
  observe: (state: CountState, format: string): Json =>
    format === 'structured' ? { ...state } : `${state.count}/${state.goal} ${state.drawn}`,
};

const counter = {
  ...counting,
  spec: spec('test/Counter-v0'),
  render: () => ({ width: 1, height: 1, data: new Uint8Array([255, 0, 0, 255]) }),
  references: {
    optimal: {
      title: 'Adds',
      plan: (state: CountState, count: number) =>
        new Array<Json>(Math.min(count, state.goal - state.count)).fill('add'),
    },
  },
} satisfies Environment<CountConfig, CountState>;

/** Steps of `test/Slow-v0` that wait to be let through, oldest first. */
export const waiting: (() => void)[] = [];

const slow = {
  ...counting,
  spec: spec('test/Slow-v0'),
  async step(state: CountState, action: Json, rng: Random) {
    await new Promise<void>(resolve => waiting.push(resolve));
    return countStep(state, action, rng);
  },
} satisfies Environment<CountConfig, CountState>;

const faulty = {
  ...counting,
  spec: spec('test/Faulty-v0', { actionSpace: { type: 'Text', maxLength: 100 } }),
  step(state: CountState, action: Json, rng: Random) {
    if (action === 'throw') throw new Error('out of order');
    return action === 'nan'
      ? { ...countStep(state, action, rng), reward: Number.NaN }
      : countStep(state, action, rng);
  },
} satisfies Environment<CountConfig, CountState>;

/**
 * Throws wherever `config.at` says, with a message of several lines that looks like a stack, or gives what no protocol
 * can write: at `late reply` in what comes of a step, at `card` in its structured observations.
 */
const broken = {
  ...counting,
  spec: spec('test/Broken-v0', {
    configSchema: Type.Object(
      { at: Type.String({ default: 'nowhere' }), goal: Type.Integer({ default: 3 }) },
      { additionalProperties: false },
    ),
    presets: {},
  }),
  reset(
    config: CountConfig & { readonly at: string },
    rng: Random,
    options: { readonly [key: string]: Json },
  ) {
    if (config.at === 'reset') throw breakdown();
    return { ...counting.reset(config, rng, options), at: config.at };
  },
  step(state: CountState & { readonly at: string }, action: Json, rng: Random) {
    if (state.at === 'step') throw breakdown();
    if (state.at === 'late step') return Promise.reject(breakdown());
    if (state.at === 'late reply') {
      return Promise.resolve({ ...countStep(state, action, rng), info: { ...info(true), count: 1n } });
    }
    return countStep(state, action, rng);
  },
  observe(state: CountState & { readonly at: string }, format: string) {
    if (state.at === 'observe') throw breakdown();
    if (state.at === 'structured' && format === 'structured') throw breakdown();
    if (state.at === 'card' && format === 'structured') return { count: BigInt(state.count) };
    return counting.observe(state, format);
  },
  render(state: CountState & { readonly at: string }) {
    if (state.at === 'render') throw breakdown();
    return { width: 1, height: 1, data: new Uint8Array([255, 0, 0, 255]) };
  },
  references: {
    optimal: {
      title: 'Fails',
      plan(): Json[] {
        throw breakdown();
      },
    },
  },
} as unknown as AnyEnvironment;

function breakdown(): Error {
  return new Error('it broke\n    at secret (/home/operator/secret.ts:1:1)');
}

/** States that `test/Held-v0` was asked to release. */
const released: Json[] = [];

const held = {
  ...counting,
  spec: spec('test/Held-v0', { seedable: false }),
  dispose(state: CountState) {
    released.push(state);
  },
} satisfies Environment<CountConfig, CountState>;

/** Draws from a private source, which no environment may. */
const fickle = {
  ...counting,
  spec: spec('test/Fickle-v0'),
  reset: (config: CountConfig): CountState => ({ count: 0, goal: config.goal, drawn: draws++ }),
} satisfies Environment<CountConfig, CountState>;
let draws = 0;

export function testRegistry(): Registry {
  const registry = createRegistry();
  for (const environment of [counter, slow, faulty, broken, held, fickle]) {
    registry.register(environment as AnyEnvironment);
  }
  return registry;
}
