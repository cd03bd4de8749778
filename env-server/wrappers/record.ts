import Type, { type Static } from 'typebox';
import type { Json } from '../../shared/json.ts';
import { stepLimit } from '../environments/settings.ts';
import { nested, stepInner, type Wrapper } from './layer.ts';

const optionsSchema = Type.Object(
  {
    observations: Type.Boolean({
      default: false,
      description: 'Whether the text observation before every step is recorded as well.',
    }),
  },
  { additionalProperties: false },
);
type Options = Static<typeof optionsSchema>;

type Entry = { readonly action: Json; readonly reward: number; readonly observation?: Json };
type Own = { readonly limit: number; readonly entries: readonly Entry[] };

/** Like Gymnasium's RecordEpisodeStatistics, with the steps themselves. */
export const record: Wrapper = {
  name: 'record',
  title: 'Tells return, length and all steps of the episode in `info.episode` of its last step.',
  optionsSchema,
  wrap(environment, options) {
    const { observations } = options as Options;
    return nested<Own>(environment, {
      begin: config => ({ limit: stepLimit(environment.spec, config), entries: [] }),
      step: ({ limit, entries: before, inner }, action, rng) =>
        stepInner(environment, inner, action, rng, transition => {
          const { reward, info } = transition;
          const entry = { action, reward };
          const entries = [
            ...before,
            observations ? { observation: environment.observe(inner, 'text'), ...entry } : entry,
          ];
          const over = transition.terminated || transition.truncated === true || entries.length >= limit;
          const episode = {
            return: entries.reduce((sum, step) => sum + step.reward, 0),
            length: entries.length,
            steps: entries,
          };
          return {
            ...transition,
            state: { limit, entries, inner: transition.state },
            info: over ? { ...info, episode } : info,
          };
        }),
    });
  },
};
