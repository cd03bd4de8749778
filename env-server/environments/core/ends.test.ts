import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { createRegistry } from '../registry.ts';
import { sensibleAction } from './checker/play.ts';
import { type AnyEnvironment, endsOf, type Transition } from './environment.ts';
import { resolveConfig, resolveOptions } from './settings.ts';

const EPISODES = 3;
const MAX_STEPS = 200;
/** Shorter games of environments that take long to end. */
const CONFIGS: { readonly [id: string]: JsonObject } = { 'Game2048-v0': { preset: 'small' } };
const NAME = /^[a-z][a-z0-9_]*$/;

/** Steps of an episode, and two after its end with a known and an unknown action. */
async function playEpisode(
  environment: AnyEnvironment,
  seed: number,
  choose: (state: Json, rng: Random) => Promise<Json | undefined>,
): Promise<Transition<Json>[]> {
  const rng = Random.fromSeed(seed);
  const own = Random.fromSeed(seed + 1000);
  const steps: Transition<Json>[] = [];
  const config = resolveConfig(environment, CONFIGS[environment.spec.id]);
  const most = Math.min(MAX_STEPS, environment.spec.maxEpisodeSteps);
  let state = await environment.reset(config, rng, resolveOptions(environment));
  while (steps.length < most) {
    const action = await choose(state, own);
    if (action === undefined) break;
    const step = await environment.step(state, action, rng);
    steps.push(step);
    state = step.state;
    if (!step.terminated && !step.truncated) continue;
    for (const late of [action, { no: 'action' }]) steps.push(await environment.step(state, late, rng));
    break;
  }
  await environment.dispose?.(state);
  return steps;
}

for (const environment of createRegistry().list()) {
  const { spec, references = {} } = environment;
  t.test(`${spec.id} names the end of each episode, in the step that ends it`, async t => {
    const ends = endsOf(spec);
    for (const [name, meaning] of Object.entries(ends)) {
      t.match(name, NAME);
      t.match(meaning, /^[A-Z].*[^.]$/, `${name} has a meaning in words`);
    }
    t.ok(Object.keys(spec.ends ?? {}).length > 0, 'it declares its ends');
    const reached = new Set<unknown>();
    const policies = [
      (state: Json, rng: Random) => sensibleAction(environment, state, rng),
      ...Object.values(references).map(
        policy => async (state: Json, rng: Random) => (await policy.plan(state, 1, rng))[0],
      ),
    ];
    for (const policy of policies) {
      for (let seed = 0; seed < EPISODES; seed++) {
        for (const { terminated, truncated, info } of await playEpisode(environment, seed, policy)) {
          if (terminated || truncated) {
            reached.add(info.ended_by);
            if (!Object.hasOwn(ends, String(info.ended_by))) t.fail(`an end is ${info.ended_by}`, { info });
          } else if ('ended_by' in info) t.fail('a step that ends nothing has ended_by', { info });
        }
      }
    }
    t.ok(reached.size > 0, `episodes ended by ${[...reached].join(', ')}`);
  });
}
