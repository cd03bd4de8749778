import type { Json } from '../../shared/json.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { chain } from '../environments/core/maybe-promise.ts';
import { stepLimit } from '../environments/core/settings.ts';
import { nested, wrapper } from './layer.ts';

type RecordedStep = { readonly action: Json; readonly reward: number; readonly observation?: Json };
type RecordState = {
  readonly limit: number;
  /** The latest steps. */
  readonly entries: readonly RecordedStep[];
  /** The steps before those, in lists that no step copies. */
  readonly earlier?: readonly (readonly RecordedStep[])[];
};

/** Steps that are copied with every step at most. */
const MAX_LATEST = 128;

/** Like Gymnasium's RecordEpisodeStatistics, with the steps themselves. */
export const record = wrapper({
  name: 'record',
  title: 'Adds return, length and all steps of the episode as `info.episode` to its last step.',
  optionsSchema: closed({
    observations: Type.Boolean({
      default: false,
      description: 'Also records the text observation before every step.',
    }),
  }),
  wrap(environment, { observations }) {
    return nested<RecordState>(environment, {
      begin: config => ({ limit: stepLimit(environment.spec, config), entries: [] }),
      again: ({ limit }) => ({ limit, entries: [] }),
      step: ({ inner, ...before }, action, rng) =>
        chain(environment.step(inner, action, rng), transition => {
          const { reward, info } = transition;
          const entry = { action, reward };
          const own = withEntry(
            before,
            observations ? { observation: environment.observe(inner, 'text'), ...entry } : entry,
          );
          const ended = transition.terminated || transition.truncated === true;
          if (!ended && lengthOf(own) < own.limit) {
            return { ...transition, state: { ...own, inner: transition.state } };
          }
          const steps = [...(own.earlier ?? []).flat(), ...own.entries];
          const episode = {
            return: steps.reduce((sum, step) => sum + step.reward, 0),
            length: steps.length,
            steps,
          };
          return { ...transition, state: { ...own, inner: transition.state }, info: { ...info, episode } };
        }),
    });
  },
});

function withEntry({ limit, entries, earlier }: RecordState, entry: RecordedStep): RecordState {
  if (entries.length < MAX_LATEST) {
    return { limit, entries: [...entries, entry], ...(earlier && { earlier }) };
  }
  return { limit, entries: [entry], earlier: [...(earlier ?? []), entries] };
}

function lengthOf({ entries, earlier = [] }: RecordState): number {
  let length = entries.length;
  for (const list of earlier) length += list.length;
  return length;
}
