import type { Json, JsonObject } from '../../shared/json.ts';
import { isParts } from '../../shared/observation-parts.ts';
import { closed } from '../../shared/schema/type.ts';
import { observationSpaces } from '../environments/core/environment.ts';
import { anyText, dict, list, longerText, type Space } from '../environments/core/spaces.ts';
import { altered, UnfitWrapper, wrapper, writtenValidActions } from './layer.ts';

export const observeValidActions = wrapper({
  name: 'observe_valid_actions',
  title: 'Adds the actions that are valid now to the observation.',
  optionsSchema: closed({}),
  wrap(environment) {
    const validNow = writtenValidActions(environment);
    if (!validNow) {
      throw new UnfitWrapper('', `${environment.spec.id} does not list the valid actions`);
    }
    return altered(environment, {
      observationSpaces: config => {
        const { text, structured } = observationSpaces(environment, config);
        return { text: withActions(text), structured: withActions(structured) };
      },
      observe: (state, format) => {
        const seen = environment.observe(state, format);
        const valid = validNow(state);
        const text = `Valid actions: ${valid.join(', ') || 'none'}`;
        if (isParts(seen)) return [...seen, { type: 'text', text: text }] as unknown as Json;
        if (typeof seen === 'string') return `${seen}\n${text}`;
        return { ...(seen as JsonObject), valid_actions: valid };
      },
    });
  },
});

/** Most characters of the actions that are listed. */
const MAX_LIST_LENGTH = 100_000;

function withActions(space: Space): Space {
  if (space.type === 'Text') return longerText(space, MAX_LIST_LENGTH, '');
  if (space.type !== 'Dict') return space;
  return dict({ ...space.spaces, valid_actions: list(anyText(MAX_LIST_LENGTH)) });
}
