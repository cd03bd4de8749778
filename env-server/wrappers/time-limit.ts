import type { Json } from '../../shared/json.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { type Transition, withTimeLimit } from '../environments/core/environment.ts';
import { chain } from '../environments/core/maybe-promise.ts';
import { type NestedState, nested, type ResetArguments, restart, wrapper } from './layer.ts';

/** Steps of this episode; around `auto_reset` also what the next one needs. */
type TimeLimitState = { readonly steps: number; readonly beginning?: ResetArguments };

/**
 * Counts the steps of what it wraps: actions when inside `action_text`, turns when outside. Around `auto_reset` it
 * begins the next episode itself where its limit ends one.
 */
export const timeLimit = wrapper({
  name: 'time_limit',
  title: 'Truncates the episode after a number of steps.',
  optionsSchema: closed({
    max_steps: Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'Steps of an episode.' }),
  }),
  wrap(environment, { max_steps: limit }) {
    return nested<TimeLimitState>(environment, {
      spec: {
        maxEpisodeSteps: Math.min(limit, environment.spec.maxEpisodeSteps),
        timeLimit: Math.min(limit, environment.spec.timeLimit ?? limit),
      },
      begin: (config, options) => ({
        steps: 0,
        ...(environment.spec.autoReset && { beginning: { config, options } }),
      }),
      again: ({ beginning }) => ({ steps: 0, ...(beginning && { beginning }) }),
      step: ({ steps: before, beginning, inner }, action, rng) => {
        const steps = before + 1;
        const own = (transition: Transition<Json>): Transition<NestedState<TimeLimitState>> => ({
          ...transition,
          state: { steps, ...(beginning && { beginning }), inner: transition.state },
        });
        return chain(environment.step(inner, action, rng), transition => {
          const isOver = !transition.terminated && steps >= limit;
          const truncated = transition.truncated === true || isOver;
          const info = transition.truncated || !isOver ? transition.info : withTimeLimit(transition.info);
          const limited = { ...transition, truncated, info };
          if (!isOver || !beginning || transition.restarted) return own(limited);
          return chain(restart(environment, limited, beginning, rng), own);
        });
      },
    });
  },
});
