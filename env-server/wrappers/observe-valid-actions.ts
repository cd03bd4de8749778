import Type from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import {
  actionNames,
  altered,
  longerText,
  UnfitWrapper,
  type Wrapper,
  writtenValidActions,
} from './layer.ts';

const LABEL = '\nValid actions: ';
const NONE = 'none';

export const observeValidActions: Wrapper = {
  name: 'observe_valid_actions',
  title: 'Adds the actions that are valid now to the observation.',
  optionsSchema: Type.Object({}, { additionalProperties: false }),
  wrap(environment) {
    const validNow = writtenValidActions(environment);
    if (!validNow) {
      throw new UnfitWrapper('', `${environment.spec.id} does not list the valid actions`);
    }
    // Of other spaces nobody knows how many actions may be valid at once.
    const names = actionNames(environment) ?? [];
    return altered(environment, {
      spec: longerText(environment, LABEL.length + Math.max(NONE.length, names.join(', ').length)),
      observe: (state, format) => {
        const seen = environment.observe(state, format);
        const valid = validNow(state);
        if (typeof seen === 'string') return `${seen}${LABEL}${valid.join(', ') || NONE}`;
        return { ...(seen as JsonObject), valid_actions: valid };
      },
    });
  },
};
