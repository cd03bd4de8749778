import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { fitting, spoilt } from '../../test/fuzz-values.test-data.ts';
import type { Schema } from '../../test/json-schema.test-data.ts';
import { checkEpisode } from './core/checker/episode-rules.ts';
import { Findings } from './core/checker/play.ts';
import { type AnyEnvironment, InvalidConfig, InvalidOptions } from './core/environment.ts';
import { resolveConfig, resolveOptions } from './core/settings.ts';
import { createRegistry } from './registry.ts';

/**
 * Tries for each environment: steps, and configurations and options given. The long mode is
 * `RAGEN_FUZZ_TRIES=100000 TAP_TIMEOUT=36000 node env-server/environments/fuzz.test.ts`, which says how far it is;
 * `RAGEN_FUZZ_SEED` varies it and `RAGEN_FUZZ_ENVIRONMENT=Sokoban` chooses.
 */
const TRIES = Number(process.env.RAGEN_FUZZ_TRIES ?? 60);
const SEED = Number(process.env.RAGEN_FUZZ_SEED ?? 1);
const CHOSEN = process.env.RAGEN_FUZZ_ENVIRONMENT ?? '';
const STEPS = 25;
/** Tries between two words about how far a run is; none in the short mode. */
const PROGRESS_EVERY = 1000;
/** Settings under which an outcome depends on how busy the machine is, set so that it does not. */
const UNHURRIED: { readonly [id: string]: JsonObject } = { 'DeepCoder-v0': { wall_s: 120, total_s: 600 } };

/** Given settings: usually those that nearly fit, now and then spoilt ones or none. */
function given(schema: Schema, rng: Random, plain: number): JsonObject {
  if (rng.chance(plain)) return {};
  const value = fitting(schema, rng) as JsonObject;
  return rng.chance(0.3) ? spoilt(value, schema, rng) : value;
}

/** Result of `make`; undefined when it refuses the settings properly, and an error when it fails otherwise. */
async function refusable<T>(make: () => T | Promise<T>): Promise<T | undefined | Error> {
  try {
    return await make();
  } catch (error) {
    if (error instanceof InvalidConfig || error instanceof InvalidOptions) return undefined;
    return error instanceof Error ? error : new Error(String(error));
  }
}

async function fuzz(
  environment: AnyEnvironment,
  say: (progress: string) => void,
): Promise<{ faults: string[]; episodes: number }> {
  const { spec } = environment;
  const rng = Random.fromSeed(SEED);
  const presets = Object.keys(spec.presets ?? {});
  const faults: string[] = [];
  let episodes = 0;
  for (let tries = 0, reported = 0; tries < TRIES && faults.length === 0; ) {
    if (tries >= reported + PROGRESS_EVERY) {
      reported = tries;
      say(`${tries} of ${TRIES} tries, ${episodes} episodes`);
    }
    const preset: JsonObject = presets.length > 0 && rng.chance(0.2) ? { preset: rng.choice(presets) } : {};
    const config = { ...preset, ...given(spec.configSchema as Schema, rng, 0.3) };
    const options = given(spec.optionsSchema as Schema, rng, 0.5);
    const what = `config ${JSON.stringify(config)} options ${JSON.stringify(options)}`;
    tries++;
    const settings = await refusable(async () => {
      const resolved = {
        config: resolveConfig(environment, config),
        options: resolveOptions(environment, options),
      };
      await environment.reset(resolved.config, Random.fromSeed(tries), resolved.options);
      environment.describe(resolved.config);
      return resolved;
    });
    if (settings instanceof Error) faults.push(`${what}: ${settings.stack}`);
    if (!settings || settings instanceof Error) continue;
    settings.config = { ...settings.config, ...UNHURRIED[spec.id] };
    const findings = new Findings();
    tries += await checkEpisode(environment, { ...settings, seed: tries, steps: STEPS }, findings, what);
    episodes++;
    faults.push(...findings.list.map(({ rule, message, where }) => `${rule}: ${message} (${where})`));
  }
  return { faults, episodes };
}

for (const environment of createRegistry().list()) {
  if (!environment.spec.id.startsWith(CHOSEN)) continue;
  t.test(`${environment.spec.id} under ${TRIES} random and malformed tries`, async t => {
    const { faults, episodes } = await fuzz(environment, progress => t.comment(progress));
    t.same(faults, []);
    t.ok(episodes > 0, `${episodes} episodes began`);
  });
}
