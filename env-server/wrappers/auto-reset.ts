import type { Json } from '../../shared/json.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { type Transition, withTimeLimit } from '../environments/core/environment.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import { stepLimit } from '../environments/core/settings.ts';
import { type NestedState, nested, type ResetArguments, restart, UnfitWrapper, wrapper } from './layer.ts';

/** Arguments of the next reset, and the steps of this episode. */
type AutoResetState = ResetArguments & { readonly steps: number };

/**
 * Gymnasium's same-step autoreset. The next episode has the same configuration and options; what it draws
 * continues the generator of the last. `terminated` and `truncated` belong to the old episode; its last
 * observation and info are `info.final_observation` (in the text form) and `info.final_info`.
 */
export const autoReset = wrapper({
  name: 'auto_reset',
  title: 'Begins the next episode with the step that ends one.',
  optionsSchema: closed({
    mode: Type.Literal('same_step', {
      default: 'same_step',
      description:
        'The step that ends an episode answers with the first observation of the next; info has the last one of the old.',
    }),
  }),
  wrap(environment) {
    if (environment.spec.autoReset) {
      throw new UnfitWrapper('', `${environment.spec.id} begins its next episode itself already`);
    }
    return nested<AutoResetState>(environment, {
      spec: { autoReset: true },
      begin: (config, options) => ({ config, options, steps: 0 }),
      step(state, action, rng): MaybePromise<Transition<NestedState<AutoResetState>>> {
        const { config, options } = state;
        const goOn = (
          transition: Transition<Json>,
        ): MaybePromise<Transition<NestedState<AutoResetState>>> => {
          const steps = state.steps + 1;
          const { terminated } = transition;
          const isOver =
            !terminated && transition.truncated !== true && steps >= stepLimit(environment.spec, config);
          const truncated = transition.truncated === true || isOver;
          if (!terminated && !truncated) {
            return { ...transition, truncated, state: { config, options, steps, inner: transition.state } };
          }
          return chain(
            restart(
              environment,
              { ...transition, truncated, ...(isOver && { info: withTimeLimit(transition.info) }) },
              { config, options },
              rng,
            ),
            next => ({
              ...next,
              state: { config, options, steps: 0, inner: next.state },
            }),
          );
        };
        return chain(environment.step(state.inner, action, rng), goOn);
      },
    });
  },
});
