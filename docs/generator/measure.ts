import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import { resolveConfig, resolveOptions, stepLimit } from '../../env-server/environments/core/settings.ts';
import { Random } from '../../shared/random.ts';

export interface Measurement {
  /** Share of episodes that ended in success. */
  readonly success: number;
  /** Mean sum of rewards. */
  readonly mean_return: number;
  readonly mean_steps: number;
}

/** Measurements of each reference policy under the default configuration. */
export interface EnvironmentMeasurement {
  readonly episodes: number;
  readonly policies: { readonly [name: string]: Measurement };
}

const DECIMALS = 6;

/** Plays every reference policy, one planned action at a time, with seeds from 0. */
export async function measure(
  environment: AnyEnvironment,
  episodes: number,
): Promise<EnvironmentMeasurement> {
  const policies: { [name: string]: Measurement } = {};
  for (const name of Object.keys(environment.references ?? {})) {
    policies[name] = await measurePolicy(environment, name, episodes);
  }
  return { episodes, policies };
}

async function measurePolicy(
  environment: AnyEnvironment,
  name: string,
  episodes: number,
): Promise<Measurement> {
  const policy = environment.references?.[name];
  if (!policy) throw new Error(`${environment.spec.id} has no reference policy ${name}`);
  const config = resolveConfig(environment);
  const options = resolveOptions(environment);
  const limit = stepLimit(environment.spec, config);
  let wins = 0;
  let sum = 0;
  let steps = 0;
  for (let seed = 0; seed < episodes; seed++) {
    const rng = Random.fromSeed(seed);
    const own = Random.fromSeed(seed + episodes);
    let state = await environment.reset(config, rng, options);
    for (let step = 1; step <= limit; step++) {
      const [action] = await policy.plan(state, 1, own);
      if (action === undefined) break;
      const result = await environment.step(state, action, rng);
      state = result.state;
      sum += result.reward;
      steps++;
      if (!result.terminated && !result.truncated) continue;
      if (result.info.success) wins++;
      break;
    }
  }
  const mean = (total: number): number => Number((total / episodes).toFixed(DECIMALS));
  return { success: mean(wins), mean_return: mean(sum), mean_steps: mean(steps) };
}
