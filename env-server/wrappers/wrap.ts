import type { JsonObject } from '../../shared/json.ts';
import { Problem } from '../../shared/problems.ts';
import type { AnyEnvironment } from '../environments/environment.ts';

/** A wrapper asked for by name. */
export interface WrapperChoice {
  readonly name: string;
  readonly options?: JsonObject;
}

/** Turns an environment into another one; its options are checked against `optionsSchema` before. */
export interface Wrapper {
  readonly name: string;
  wrap(environment: AnyEnvironment, options: JsonObject): AnyEnvironment;
}

/** Every wrapper there is, by name. */
export const WRAPPERS: ReadonlyMap<string, Wrapper> = new Map();

/**
 * Applies wrappers in the order given: the first is the innermost.
 * @throws Problem `invalid_request` for an unknown name
 */
export function wrap(environment: AnyEnvironment, choices: readonly WrapperChoice[]): AnyEnvironment {
  let wrapped = environment;
  choices.forEach((choice, index) => {
    const wrapper = WRAPPERS.get(choice.name);
    if (!wrapper) {
      const known = [...WRAPPERS.keys()].sort().join(', ') || 'none on this server';
      const detail = `unknown wrapper "${choice.name}"; available: ${known}`;
      throw new Problem('invalid_request', detail, {
        violations: [{ pointer: `/wrappers/${index}/name`, detail }],
      });
    }
    wrapped = wrapper.wrap(wrapped, choice.options ?? {});
  });
  return wrapped;
}
