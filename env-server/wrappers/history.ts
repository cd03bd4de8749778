import type { Json } from '../../shared/json.ts';
import { isParts, type ObservationPart } from '../../shared/observation-parts.ts';
import { closed } from '../../shared/schema/type.ts';
import { observationSpaces } from '../environments/core/environment.ts';
import { chain } from '../environments/core/maybe-promise.ts';
import { integerSetting } from '../environments/core/settings.ts';
import {
  anyText,
  charactersOf,
  dict,
  LINES,
  list,
  longerText,
  number,
  type Space,
  text,
} from '../environments/core/spaces.ts';
import { describeWith, nested, wrapper, writtenAction } from './layer.ts';

/** A past step: the state before it, what was done and what it paid. */
type Turn = { readonly state: Json; readonly action: Json; readonly reward: number };
type HistoryState = { readonly past: readonly Turn[] };

export const history = wrapper({
  name: 'history',
  title: 'Shows the last steps, with actions and rewards, before the current observation.',
  optionsSchema: closed({
    turns: integerSetting(3, [1, 100], 'Past steps that are shown.'),
  }),
  wrap(environment, { turns }) {
    const action = environment.spec.actionSpace;
    return nested<HistoryState>(environment, {
      describe: describeWith(environment, 'The last steps are shown before the current observation.'),
      observationSpaces: config => {
        const spaces = observationSpaces(environment, config);
        return {
          text: withHistory(spaces.text, turns, action),
          structured: withHistory(spaces.structured, turns, action),
        };
      },
      begin: () => ({ past: [] }),
      again: () => ({ past: [] }),
      step: (state, action, rng) =>
        chain(environment.step(state.inner, action, rng), transition => ({
          ...transition,
          state: {
            past: [...state.past, { state: state.inner, action, reward: transition.reward }].slice(-turns),
            inner: transition.state,
          },
        })),
      observe: ({ past, inner }, format) => {
        const now = environment.observe(inner, format);
        const before = past.map(turn => ({ ...turn, seen: environment.observe(turn.state, format) }));
        if (isParts(now)) {
          const earlier = before.flatMap(({ seen, action, reward }) => [
            ...(seen as unknown as ObservationPart[]),
            { type: 'text' as const, text: stepText(writtenAction(environment, action), reward) },
          ]);
          return [...earlier, ...now] as unknown as Json;
        }
        if (typeof now !== 'string') {
          const list = before.map(({ seen, action, reward }) => ({
            observation: seen,
            action: writtenAction(environment, action),
            reward,
          }));
          return { history: list, now };
        }
        if (before.length === 0) return now;
        const lines = before.map(
          ({ seen, action, reward }) => `${seen}\n${stepText(writtenAction(environment, action), reward)}`,
        );
        return [...lines, now].join('\n\n');
      },
    });
  },
});

const stepText = (action: string, reward: number): string => `Action: ${action}\nReward: ${reward}`;

/** Characters of a line with an action and one with a reward, the action itself aside. */
const MAX_LINES_LENGTH = 64;
/** Greatest length of an action that is shown, also of an invalid one. */
const MAX_ACTION_LENGTH = 10_000;

/** Observation space with the last steps before each observation. */
function withHistory(space: Space, turns: number, action: Space): Space {
  const longest = Math.max(MAX_ACTION_LENGTH, action.type === 'Text' ? action.maxLength : 0);
  const names = action.type === 'Discrete' ? (action.names?.join('') ?? '') : '';
  const charset = action.type === 'Text' ? action.charset : names;
  if (space.type === 'Text') {
    return longerText(space, turns * (space.maxLength + longest + MAX_LINES_LENGTH), charset);
  }
  const written = charset === undefined ? anyText(longest) : text(longest, charactersOf(LINES, charset));
  return dict({
    history: list(dict({ observation: space, action: written, reward: number() })),
    now: space,
  });
}
