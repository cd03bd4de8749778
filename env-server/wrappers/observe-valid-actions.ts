import Type from 'typebox';
import type { JsonObject } from '../../shared/json.ts';
import { altered, UnfitWrapper, type Wrapper, writtenValidActions } from './layer.ts';

export const observeValidActions: Wrapper = {
  name: 'observe_valid_actions',
  title: 'Adds the actions that are valid now to the observation.',
  optionsSchema: Type.Object({}, { additionalProperties: false }),
  wrap(environment) {
    const validNow = writtenValidActions(environment);
    if (!validNow) {
      throw new UnfitWrapper('', `${environment.spec.id} does not list the valid actions`);
    }
    return altered(environment, {
      observe: (state, format) => {
        const seen = environment.observe(state, format);
        const valid = validNow(state);
        if (typeof seen === 'string') return `${seen}\nValid actions: ${valid.join(', ') || 'none'}`;
        return { ...(seen as JsonObject), valid_actions: valid };
      },
    });
  },
};
