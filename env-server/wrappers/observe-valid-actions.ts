import Type from 'typebox';
import type { Json, JsonObject } from '../../shared/json.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import { actionNames, altered, UnfitWrapper, type Wrapper, writtenAction } from './layer.ts';

export const observeValidActions: Wrapper = {
  name: 'observe_valid_actions',
  title: 'Adds the actions that are valid now to the observation.',
  optionsSchema: Type.Object({}, { additionalProperties: false }),
  wrap(environment) {
    if (!environment.validActions && !actionNames(environment)) {
      throw new UnfitWrapper('', `${environment.spec.id} does not list the valid actions`);
    }
    return altered(environment, {
      observe: (state, format) => {
        const seen = environment.observe(state, format);
        const valid = validNow(environment, state);
        if (typeof seen === 'string') return `${seen}\nValid actions: ${valid.join(', ') || 'none'}`;
        return { ...(seen as JsonObject), valid_actions: valid };
      },
    });
  },
};

function validNow(environment: AnyEnvironment, state: Json): readonly string[] {
  if (!environment.validActions) return actionNames(environment) ?? [];
  return environment.validActions(state).map(action => writtenAction(environment, action));
}
