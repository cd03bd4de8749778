import Type, { type Static } from 'typebox';
import { nested, stepInner, type Wrapper } from './layer.ts';

const optionsSchema = Type.Object(
  { max_steps: Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'Steps of an episode.' }) },
  { additionalProperties: false },
);
type Options = Static<typeof optionsSchema>;
type Own = { readonly steps: number };

/** Counts the steps of what it wraps: actions when inside `action_text`, turns when outside. */
export const timeLimit: Wrapper = {
  name: 'time_limit',
  title: 'Truncates the episode after a number of steps.',
  optionsSchema,
  wrap(environment, options) {
    const { max_steps: limit } = options as Options;
    return nested<Own>(environment, {
      spec: {
        maxEpisodeSteps: Math.min(limit, environment.spec.maxEpisodeSteps),
        timeLimit: Math.min(limit, environment.spec.timeLimit ?? limit),
      },
      begin: () => ({ steps: 0 }),
      step: (state, action, rng) =>
        stepInner(environment, state.inner, action, rng, transition => {
          const steps = state.steps + 1;
          const truncated = transition.truncated === true || (!transition.terminated && steps >= limit);
          return { ...transition, state: { steps, inner: transition.state }, truncated };
        }),
    });
  },
};
