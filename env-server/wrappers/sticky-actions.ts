import type { Json } from '../../shared/json.ts';
import { closed } from '../../shared/schema/type.ts';
import { chain } from '../environments/core/maybe-promise.ts';
import { numberSetting } from '../environments/core/settings.ts';
import { describeWith, nested, wrapper } from './layer.ts';

/** The last valid action that was done. */
type StickyState = { readonly last: Json };

/** Sticky actions (Machado et al. 2018); `info.executed_action` says what was done. */
export const stickyActions = wrapper({
  name: 'sticky_actions',
  title: 'Repeats the previous action instead of the chosen one, with a probability.',
  optionsSchema: closed({
    probability: numberSetting(0.25, [0, 1], 'Probability of repeating the previous action.'),
  }),
  wrap(environment, { probability }) {
    return nested<StickyState>(environment, {
      describe: describeWith(environment, 'Now and then the previous action is done again instead of yours.'),
      begin: () => ({ last: null }),
      again: () => ({ last: null }),
      step: (state, action, rng) => {
        const sticks = rng.chance(probability) && state.last !== null;
        const executed = sticks ? state.last : action;
        return chain(environment.step(state.inner, executed, rng), transition => ({
          ...transition,
          state: {
            last: transition.info.action_is_valid ? executed : state.last,
            inner: transition.state,
          },
          info: { ...transition.info, executed_action: executed },
        }));
      },
    });
  },
});
