import type { Json, JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import type { AnyEnvironment, ObservationFormat, Transition } from '../environments/core/environment.ts';
import { resolveConfig, resolveOptions } from '../environments/core/settings.ts';
import { frozenLake } from '../environments/frozenlake/frozenlake.ts';
import { type WrapperChoice, wrap } from './wrap.ts';

/** A lake that does not slip, crossed by three steps to the right; the hole lies below the start. */
const STRAIGHT: JsonObject = { layout: ['P__G', 'O___'] };

/** A wrapped environment in play. */
export interface WrappedPlay {
  readonly environment: AnyEnvironment;
  readonly config: JsonObject;
  state: Json;
  readonly rng: Random;
  step(action: Json): Promise<Transition<Json>>;
  see(format?: ObservationFormat): Json;
}

/** Begins an episode under wrappers, by default on the straight lake. */
export async function begin(
  wrappers: readonly WrapperChoice[],
  {
    environment: base = frozenLake as AnyEnvironment,
    config: given = { success_rate: 1 },
    options = STRAIGHT,
    seed = 1,
  }: { environment?: AnyEnvironment; config?: JsonObject; options?: JsonObject; seed?: number } = {},
): Promise<WrappedPlay> {
  const environment = wrap(base, wrappers);
  const config = resolveConfig(environment, given);
  const rng = Random.fromSeed(seed);
  const play: WrappedPlay = {
    environment,
    config,
    rng,
    state: await environment.reset(config, rng, resolveOptions(environment, options)),
    async step(action) {
      const result = await environment.step(play.state, action, rng);
      play.state = result.state;
      return result;
    },
    see(format = 'text') {
      return environment.observe(play.state, format);
    },
  };
  return play;
}
