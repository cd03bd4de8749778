import type { Test } from 'tap';
import type { AnyEnvironment, Environment, Transition } from '../env-server/environments/core/environment.ts';
import { resolveConfig, resolveOptions } from '../env-server/environments/core/settings.ts';
import type { Json, JsonObject } from '../shared/json.ts';
import { Random } from '../shared/random.ts';

/** Actions that no environment knows, and near misses. */
const JUNK: readonly Json[] = [
  '',
  ' ',
  'hello',
  'x'.repeat(3000),
  -1,
  1.5,
  1e9,
  true,
  null,
  [],
  {},
  [1],
  '\u0000[]',
];

/** An environment under test as the server uses it: settings checked, everything awaited. */
export function playing<Config, State>(environment: Environment<Config, State>) {
  const any = environment as unknown as AnyEnvironment;
  return {
    config: (config: JsonObject = {}) => resolveConfig(any, config) as Config,
    async reset(config: JsonObject = {}, options: JsonObject = {}, seed = 1): Promise<State> {
      const checked = resolveConfig(any, config) as Config;
      return environment.reset(checked, Random.fromSeed(seed), resolveOptions(any, options));
    },
    async step(state: State, action: Json, rng = Random.fromSeed(1)): Promise<Transition<State>> {
      return environment.step(state, action, rng);
    },
    text: (state: State) => environment.observe(state, 'text') as string,
    /** Plays a reference policy to the end, one action at a time. */
    async finish(state: State, policy: string, mostSteps: number) {
      const reference = environment.references?.[policy];
      if (!reference) throw new Error(`${environment.spec.id} has no reference policy ${policy}`);
      const rng = Random.fromSeed(2);
      let result: Transition<State> | undefined;
      let total = 0;
      let steps = 0;
      for (let now = state; steps < mostSteps; now = result.state) {
        const [action] = await reference.plan(now, 1, rng);
        if (action === undefined) break;
        result = await environment.step(now, action, rng);
        total += result.reward;
        steps++;
        if (result.terminated || result.truncated) break;
      }
      return { result, total, steps, success: result?.info.success === true };
    },
  };
}

export interface ContractOptions {
  readonly configs?: readonly JsonObject[];
  readonly options?: JsonObject;
  /** Episodes for each configuration. */
  readonly episodes?: number;
  readonly steps?: number;
}

/**
 * What every environment owes its callers, under random and malformed actions: plain state that is never
 * altered, the same future from a copy, finite rewards within the range that the spec names, and
 * observations of the right type in every format.
 */
export async function checkContract<Config, State>(
  t: Test,
  environment: Environment<Config, State>,
  { configs = [{}], options = {}, episodes = 4, steps = 30 }: ContractOptions = {},
): Promise<void> {
  const { spec } = environment;
  const play = playing(environment);
  const [least, most] = spec.rewardRange;
  for (const config of [...configs, ...Object.values(spec.presets ?? {})]) {
    const description = environment.describe(play.config(config));
    t.ok(description.instruction.length > 0, 'has an instruction');
    t.ok(description.actions || description.actionFormat, 'says how to act');
    for (let seed = 0; seed < episodes; seed++) {
      const pick = Random.fromSeed(seed + 1000);
      const rng = Random.fromSeed(seed);
      let state: State = freeze(await play.reset(config, options, seed));
      for (let step = 0; step < steps; step++) {
        const copy: State = JSON.parse(JSON.stringify(state)) as State;
        same(t, copy, state, 'state is plain JSON');
        for (const format of spec.observationFormats) {
          const seen = environment.observe(state, format);
          if (format === 'structured') {
            same(t, JSON.parse(JSON.stringify(seen)), seen, 'structured observation is plain JSON');
          } else if (typeof seen !== 'string') t.fail(`format ${format} is not text`);
        }
        const picture = step === 0 && environment.render?.(state);
        if (picture && picture.data.length !== 4 * picture.width * picture.height) {
          t.fail(`a picture of ${picture.width}×${picture.height} has ${picture.data.length} bytes`);
        }
        const action = await someAction(environment, state, pick);
        const twin = Random.fromState(rng.state);
        const result = await environment.step(state, action, rng);
        same(t, await environment.step(copy, action, twin), result, 'a copy has the same future');
        const { reward, info } = result;
        if (!(reward >= least - 1e-9 && reward <= most + 1e-9)) {
          t.fail(`reward ${reward} of ${JSON.stringify(action)} lies outside ${least}…${most}`);
        }
        for (const key of ['success', 'action_is_valid', 'action_is_effective']) {
          if (typeof info[key] !== 'boolean') t.fail(`info.${key} is ${info[key]}`);
        }
        state = freeze(result.state);
        if (result.terminated || result.truncated) break;
      }
    }
  }
}

async function someAction<Config, State>(
  environment: Environment<Config, State>,
  state: State,
  rng: Random,
): Promise<Json> {
  if (rng.chance(0.3)) return rng.choice(JUNK);
  const valid = environment.validActions?.(state);
  if (valid && valid.length > 0) return rng.choice(valid);
  const [action] = (await environment.references?.random?.plan(state, 1, rng)) ?? [];
  return action ?? environment.spec.exampleAction;
}

/** Reports only what differs: thousands of passing assertions would drown the rest. */
function same(t: Test, found: unknown, wanted: unknown, message: string): void {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) t.same(found, wanted, message);
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) freeze(part);
  }
  return value;
}
