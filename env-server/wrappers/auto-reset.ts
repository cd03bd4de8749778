import Type from 'typebox';
import type { Json, JsonObject } from '../../shared/json.ts';
import type { Transition } from '../environments/core/environment.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import { stepLimit } from '../environments/core/settings.ts';
import { type Nested, nested, type Wrapper } from './layer.ts';

const optionsSchema = Type.Object(
  {
    mode: Type.Literal('same_step', {
      default: 'same_step',
      description:
        'The step that ends an episode answers with the first observation of the next; the last one of the old stands in info.',
    }),
  },
  { additionalProperties: false },
);

/** What a new episode needs, and the steps of this one. */
type Own = {
  readonly config: JsonObject;
  readonly options: JsonObject;
  readonly steps: number;
};

/**
 * Gymnasium's same-step autoreset. The next episode has the same configuration and options; what it draws
 * goes on from the generator of the last. `terminated` and `truncated` tell of the old episode, whose last
 * observation and info are `info.final_observation` (in the text form) and `info.final_info`.
 */
export const autoReset: Wrapper = {
  name: 'auto_reset',
  title: 'Begins the next episode with the step that ends one.',
  optionsSchema,
  wrap(environment) {
    return nested<Own>(environment, {
      spec: { autoReset: true },
      begin: (config, options) => ({ config, options, steps: 0 }),
      step(state, action, rng): MaybePromise<Transition<Nested<Own>>> {
        const { config, options } = state;
        const goOn = (transition: Transition<Json>): MaybePromise<Transition<Nested<Own>>> => {
          const steps = state.steps + 1;
          const { terminated, info } = transition;
          const truncated =
            transition.truncated === true || (!terminated && steps >= stepLimit(environment.spec, config));
          if (!terminated && !truncated) {
            return { ...transition, truncated, state: { config, options, steps, inner: transition.state } };
          }
          const begin = (inner: Json): Transition<Nested<Own>> => ({
            state: { config, options, steps: 0, inner },
            reward: transition.reward,
            terminated,
            truncated,
            info: { ...info, final_observation: last, final_info: info },
            restarted: true,
          });
          const last = environment.observe(transition.state, 'text');
          return chain(environment.dispose?.(transition.state), () =>
            chain(environment.reset(config, rng, options), begin),
          );
        };
        return chain(environment.step(state.inner, action, rng), goOn);
      },
    });
  },
};
