import Type, { type Static } from 'typebox';
import type { Json } from '../../shared/json.ts';
import type { Space } from '../../shared/spaces.ts';
import { dict, list, longerText, number, observationSpaces } from '../environments/spaces.ts';
import { alsoTold, nested, stepInner, type Wrapper, writtenAction } from './layer.ts';

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
    const action = environment.spec.actionSpace;
    return nested<Own>(environment, {
      describe: alsoTold(environment, 'The last steps are shown before the current observation.'),
      observationSpaces: config => {
        const spaces = observationSpaces(environment, config);
        return {
          text: withHistory(spaces.text, turns, action),
          structured: withHistory(spaces.structured, turns, action),
        };
      },
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

/** Characters of a line with an action and one with a reward, the action itself aside. */
const LONGEST_LINES = 64;
/** Of an action that is not text, written as JSON. */
const LONGEST_ACTION = 10_000;

/** What is seen with the last steps before it. */
function withHistory(space: Space, turns: number, action: Space): Space {
  if (space.type !== 'Text') {
    return dict({
      history: list(dict({ observation: space, action, reward: number() })),
      now: space,
    });
  }
  const longest = action.type === 'Text' ? action.maxLength : LONGEST_ACTION;
  const names = action.type === 'Discrete' ? (action.names?.join('') ?? '') : '';
  const charset = action.type === 'Text' ? action.charset : names;
  return longerText(space, turns * (space.maxLength + longest + LONGEST_LINES), charset);
}
