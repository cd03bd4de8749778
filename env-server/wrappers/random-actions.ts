import type { Json } from '../../shared/json.ts';
import type { Random } from '../../shared/random.ts';
import { closed } from '../../shared/schema/type.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { chain } from '../environments/core/maybe-promise.ts';
import { numberSetting } from '../environments/core/settings.ts';
import { altered, describeWith, UnfitWrapper, wrapper } from './layer.ts';

/** Makes any environment stochastic; `info.executed_action` says what was done. */
export const randomActions = wrapper({
  name: 'random_actions',
  title: 'Replaces the chosen action by a uniformly random one, with a probability.',
  optionsSchema: closed({
    probability: numberSetting(0.1, [0, 1], 'Probability of a random action.'),
  }),
  wrap(environment, { probability }) {
    if (environment.spec.actionSpace.type !== 'Discrete' && !environment.validActions) {
      throw new UnfitWrapper(
        '',
        `${environment.spec.id} neither has discrete actions nor lists the valid ones, so none can be drawn`,
      );
    }
    return altered(environment, {
      describe: describeWith(environment, 'Now and then a random action is done instead of yours.'),
      step: (state, action, rng) => {
        const executed = rng.chance(probability) ? (draw(environment, state, rng) ?? action) : action;
        return chain(environment.step(state, executed, rng), transition => ({
          ...transition,
          info: { ...transition.info, executed_action: executed },
        }));
      },
    });
  },
});

function draw(environment: AnyEnvironment, state: Json, rng: Random): Json | undefined {
  const valid = environment.validActions?.(state);
  if (valid) return valid.length > 0 ? rng.choice(valid) : undefined;
  const space = environment.spec.actionSpace;
  return space.type === 'Discrete' ? (space.start ?? 0) + rng.integer(space.n) : undefined;
}
