import Type, { type Static } from 'typebox';
import type { Json } from '../../shared/json.ts';
import {
  alsoTold,
  longerText,
  longestAction,
  nested,
  stepInner,
  type Wrapper,
  writtenAction,
} from './layer.ts';

/** Characters of a past step around its observation and action: the labels and a number. */
const TURN_FRAME = 64;
/** Of actions whose space does not tell how long they are. */
const LONG_ACTION = 1000;

const optionsSchema = Type.Object(
  {
    turns: Type.Integer({ default: 3, minimum: 1, maximum: 100, description: 'Past steps that are shown.' }),
  },
  { additionalProperties: false },
);
type Options = Static<typeof optionsSchema>;

/** A past step: the state before it, what was done and what it paid. */
type Turn = { readonly state: Json; readonly action: Json; readonly reward: number };
type Own = { readonly past: readonly Turn[] };

export const history: Wrapper = {
  name: 'history',
  title: 'Shows the last steps, with actions and rewards, before the current observation.',
  optionsSchema,
  wrap(environment, options) {
    const { turns } = options as Options;
    const { observationSpace: space } = environment.spec;
    const shown = space.type === 'Text' ? space.maxLength : 0;
    const turnLength = shown + (longestAction(environment) ?? LONG_ACTION) + TURN_FRAME;
    return nested<Own>(environment, {
      spec: longerText(environment, turns * turnLength),
      describe: alsoTold(environment, 'The last steps are shown before the current observation.'),
      begin: () => ({ past: [] }),
      step: (state, action, rng) =>
        stepInner(environment, state.inner, action, rng, transition => ({
          ...transition,
          state: {
            past: [...state.past, { state: state.inner, action, reward: transition.reward }].slice(-turns),
            inner: transition.state,
          },
        })),
      observe: ({ past, inner }, format) => {
        const now = environment.observe(inner, format);
        const before = past.map(turn => ({ ...turn, seen: environment.observe(turn.state, format) }));
        if (typeof now !== 'string') {
          const list = before.map(({ seen, action, reward }) => ({ observation: seen, action, reward }));
          return { history: list, now };
        }
        if (before.length === 0) return now;
        const lines = before.map(
          ({ seen, action, reward }) =>
            `${seen}\nAction: ${writtenAction(environment, action)}\nReward: ${reward}`,
        );
        return [...lines, now].join('\n\n');
      },
    });
  },
};
